// Who is not let in, and what is not listened to: each is refused and logged, and the job of the
// others ends well.

#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class AdmissionTest : public CoordinatorTest {
 protected:
  static rpc::PeerIdentity agent(uint32_t node, uint64_t incarnation = 0) {
    return {.role = rpc::PeerRole::kAgent,
            .number = node,
            .incarnation = base::Incarnation(incarnation)};
  }
  // The job is as it was, and comes to its end.
  void expect_undisturbed() {
    EXPECT_EQ(record_.plans.size(), 1u);
    EXPECT_EQ(record_.count("node.lost"), 0u);
    EXPECT_FALSE(outcome().has_value());
    finish_job();
    EXPECT_EQ(record_.plans.size(), 1u);
  }
  void expect_dismissed(Stranger& peer, StatusCode code, const std::string& why) {
    ASSERT_OK_AND_ASSIGN(const auto dismiss, peer.expect<protocol::Dismiss>());
    EXPECT_EQ(dismiss.code, static_cast<uint32_t>(code));
    EXPECT_THAT(dismiss.why, HasSubstr(why));
    EXPECT_THAT(peer.receive(), StatusIs(StatusCode::kUnavailable));
  }
};

TEST_F(AdmissionTest, AWrongSecretIsTurnedAway) {
  start_job();
  Stranger peer = stranger();
  const std::string log = logged([&] {
    EXPECT_FALSE(peer.shake(agent(2), "guessed").is_ok());
    pass(1_s);
  });
  EXPECT_THAT(log, HasSubstr("connection refused"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, AnotherVersionIsTurnedAway) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.connect());
  std::vector<std::byte> bytes = rpc::encode_frame({.type = 1, .payload = rpc::Payload(50)});
  bytes[4] = std::byte{99};
  const std::string log = logged([&] {
    ASSERT_OK(peer.send_bytes(bytes));
    EXPECT_FALSE(peer.receive().is_ok());
  });
  EXPECT_THAT(log, HasSubstr("version"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, WhatIsNoHandshakeIsTurnedAway) {
  start_job();
  const std::string request = "GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: port scanner\r\n\r\n";
  for (const bool framed : {false, true}) {
    Stranger peer = stranger();
    ASSERT_OK(peer.connect());
    const std::string log = logged([&] {
      if (framed) {
        ASSERT_OK(peer.send(protocol::NodeJoin{.node = base::NodeId(2)}));
      } else {
        const auto text = base::as_byte_span(request);
        ASSERT_OK(peer.send_bytes({text.begin(), text.end()}));
      }
      EXPECT_FALSE(peer.receive().is_ok());
    });
    EXPECT_THAT(log, HasSubstr("connection refused"));
  }
  expect_undisturbed();
}

TEST_F(AdmissionTest, WhoIsSilentIsLeft) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.connect());
  const base::Nanos before = world_.now();
  const std::string log = logged([&] { EXPECT_FALSE(peer.receive(60_s).is_ok()); });
  EXPECT_LE(world_.now() - before, rpc::kHandshakeTimeout + 1_s);
  EXPECT_THAT(log, HasSubstr("connection refused"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, WhoShakesHandsAndThenIsSilentIsLeft) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.shake(agent(2)));
  const base::Nanos before = world_.now();
  expect_dismissed(peer, StatusCode::kDeadlineExceeded, "");
  EXPECT_LE(world_.now() - before, 11_s);
  expect_undisturbed();
}

TEST_F(AdmissionTest, WorkersHaveNoBusinessHere) {
  start_job();
  Stranger peer = stranger();
  const std::string log = logged([&] {
    ASSERT_OK(peer.shake({.role = rpc::PeerRole::kWorker, .number = 1}));
    EXPECT_THAT(peer.receive(), StatusIs(StatusCode::kUnavailable));
  });
  EXPECT_THAT(log, HasSubstr("no business here"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, ANodeNumberOutsideIsRefused) {
  start_job();
  Stranger peer = stranger();
  const std::string log = logged([&] {
    ASSERT_OK(peer.shake(agent(3)));
    expect_dismissed(peer, StatusCode::kInvalidArgument, "node 3 of a job with 3");
  });
  EXPECT_THAT(log, HasSubstr("node refused"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, ANodeWithTwoNamesIsRefused) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.shake(agent(2)));
  ASSERT_OK(peer.send(protocol::NodeJoin{.node = base::NodeId(1)}));
  expect_dismissed(peer, StatusCode::kInvalidArgument, "two names");
  expect_undisturbed();
}

TEST_F(AdmissionTest, ANodeOfAnotherJobIsRefused) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.shake(agent(2)));
  ASSERT_OK(peer.send(protocol::NodeJoin{.node = base::NodeId(2), .job_id = "job-0"}));
  expect_dismissed(peer, StatusCode::kInvalidArgument, "a node of job job-0");
  expect_undisturbed();
}

TEST_F(AdmissionTest, AJoinThatCannotBeReadIsRefused) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.shake(agent(2)));
  const rpc::Frame bad{.type = static_cast<uint16_t>(MessageType::kNodeJoin),
                       .payload = rpc::Payload(5, std::byte{0xff})};
  ASSERT_OK(peer.send(bad));
  expect_dismissed(peer, StatusCode::kDataLoss, "");
  expect_undisturbed();
}

TEST_F(AdmissionTest, AnotherMessageInPlaceOfTheJoinIsRefused) {
  start_job();
  Stranger peer = stranger();
  ASSERT_OK(peer.shake(agent(2)));
  ASSERT_OK(peer.send(protocol::Beat{}));
  expect_dismissed(peer, StatusCode::kDataLoss, "was expected");
  expect_undisturbed();
}

// A zombie: its node was given to a new process meanwhile.
TEST_F(AdmissionTest, AnOldIncarnationIsDismissedAsAborted) {
  start_job();
  world_.host("n1").kill(chaos::Crash::kProcess);
  nodes_[1].incarnation = {};
  new_process(1);
  world_.host("n1").restart();
  ASSERT_TRUE(until([this] { return nodes_[1].incarnation == base::Incarnation(2); }));
  pass(2_s);
  const size_t plans = record_.plans.size();
  Stranger zombie = stranger();
  ASSERT_OK(zombie.shake(agent(1, 1)));
  ASSERT_OK(zombie.send(protocol::NodeJoin{.node = base::NodeId(1), .job_id = "job-1"}));
  expect_dismissed(zombie, StatusCode::kAborted, "");
  pass(2_s);
  EXPECT_EQ(record_.plans.size(), plans);
  finish_job();
}

// -- those who are in

TEST_F(AdmissionTest, AWorkerOfAnotherNodeIsRefused) {
  start_job();
  boot_agent(2);
  pass(1_s);
  const protocol::WorkerUp up{
      .info = {.worker = base::WorkerId(1), .incarnation = base::Incarnation(99)}};
  const protocol::WorkerDown down{
      .worker = base::WorkerId(1), .incarnation = base::Incarnation(1), .how = "signal 9"};
  const std::string log = logged([&] {
    on_agent(2, [&](AgentProcess& a) {
      a.say(up);
      a.say(down);
    });
    pass(1_s);
  });
  EXPECT_THAT(log, HasSubstr("worker of another node"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, ANodeDoesNotSpeakForTheWorkersOfAnother) {
  start_job();
  boot_agent(2);
  pass(1_s);
  const protocol::Stopped stopped{.code = static_cast<uint32_t>(StatusCode::kInternal),
                                  .text = "made up"};
  const std::string log = logged([&] {
    on_agent(2, [&](AgentProcess& a) {
      a.pass_on({.worker = base::WorkerId(1),
                 .incarnation = base::Incarnation(1),
                 .epoch = base::Epoch(1),
                 .type = MessageType::kStopped,
                 .payload = rpc::to_bytes(stopped)});
    });
    pass(1_s);
  });
  EXPECT_THAT(log, HasSubstr("worker of another node"));
  expect_undisturbed();
}

TEST_F(AdmissionTest, WordsOfAWorkerThatCannotBeReadAreLeftOut) {
  start_job();
  for (const MessageType type :
       {MessageType::kStateTold, MessageType::kVoteTold, MessageType::kPrepared,
        MessageType::kLoaded, MessageType::kStopped, MessageType::kStepReport,
        MessageType::kEvaluationReport, MessageType::kFinished, MessageType::kFence,
        MessageType::kNodeJoin, static_cast<MessageType>(999)}) {
    const std::string log = logged([&] {
      on_agent(1, [&](AgentProcess& a) {
        a.pass_on({.worker = base::WorkerId(1),
                   .incarnation = base::Incarnation(1),
                   .epoch = base::Epoch(1),
                   .type = type,
                   .payload = rpc::Payload(3, std::byte{0xee})});
      });
      pass(100_ms);
    });
    EXPECT_THAT(log, HasSubstr("message refused")) << static_cast<int>(type);
  }
  expect_undisturbed();
}

TEST_F(AdmissionTest, WordsOfAnOldProcessOrEpochHaveNoEffect) {
  start_job();
  const protocol::Stopped stopped{.code = static_cast<uint32_t>(StatusCode::kInternal),
                                  .text = "old news"};
  const protocol::Finished finished{.step = base::Step(9)};
  on_agent(1, [&](AgentProcess& a) {
    a.tell(1, stopped, base::Epoch(0));
    a.tell(1, finished, base::Epoch(7));
    a.pass_on({.worker = base::WorkerId(1),
               .incarnation = base::Incarnation(8),
               .epoch = base::Epoch(1),
               .type = MessageType::kStopped,
               .payload = rpc::to_bytes(stopped)});
  });
  pass(1_s);
  EXPECT_EQ(coordinator_->machine().stale_events(), 3u);
  EXPECT_TRUE(record_.finished.empty());
  expect_undisturbed();
}

// The connection is of no more use; the agent comes again, and the job goes on.
TEST_F(AdmissionTest, AnAgentThatSaysWhatNoAgentSaysMustComeAgain) {
  for (const rpc::Frame& bad :
       {protocol::to_frame(protocol::NodeWelcome{}, {}), protocol::to_frame(protocol::Fence{}, {}),
        rpc::Frame{.type = 999},
        rpc::Frame{.type = static_cast<uint16_t>(MessageType::kBeat),
        .payload = rpc::Payload(3, std::byte{1})},
        rpc::Frame{.type = static_cast<uint16_t>(MessageType::kFromWorkers),
        .payload = rpc::Payload(3, std::byte{1})},
        rpc::Frame{.type = static_cast<uint16_t>(MessageType::kWorkerUp)},
        rpc::Frame{.type = static_cast<uint16_t>(MessageType::kWorkerDown)}}) {
    SCOPED_TRACE(bad.type);
    if (record_.plans.empty()) start_job();
    const uint32_t connections = nodes_[1].connections;
    on_agent(1, [&](AgentProcess& a) { a.say(bad); });
    ASSERT_TRUE(until([&] { return nodes_[1].connections == connections + 1; }));
    pass(2_s);
    EXPECT_EQ(record_.plans.back().members.size(), 2u);
    play_.train_to = record_.steps.size() + 1;
    play_.steps = 50;
    train_to(play_.train_to);
  }
  play_.steps = play_.train_to + 1;
  finish_job();
}

TEST_F(AdmissionTest, ManyStrangersAtOnceDisturbNobody) {
  start_job();
  std::vector<Stranger> crowd;
  for (int i = 0; i < 200; ++i) {
    crowd.push_back(stranger());
    ASSERT_OK(crowd.back().connect());
  }
  pass(10_s);
  expect_undisturbed();
}

}  // namespace
}  // namespace perdure::runtime::coordinator
