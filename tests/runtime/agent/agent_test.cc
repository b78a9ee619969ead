#include <algorithm>

#include "runtime/rpc/handshake.h"
#include "tests/runtime/agent/agent_harness.h"

namespace perdure::runtime::agent {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using protocol::Activity;
using ::testing::HasSubstr;

constexpr base::Epoch kEpoch(5);

recovery::EpochPlan plan() {
  recovery::EpochPlan p;
  p.epoch = kEpoch;
  return p;
}

TEST_F(AgentTest, JoinsStartsItsWorkersAndTellsOfThem) {
  start();
  ASSERT_EQ(stage_.joins.size(), 1u);
  EXPECT_EQ(stage_.joins[0].node, base::NodeId(4));
  EXPECT_EQ(stage_.joins[0].pid, 77u);
  EXPECT_EQ(stage_.joins[0].job_id, "");
  EXPECT_TRUE(stage_.joins[0].workers.empty());
  EXPECT_EQ(stage_.join_incarnations[0], base::Incarnation(0));
  const auto ups = heard<protocol::WorkerUp>();
  ASSERT_EQ(ups.size(), 2u);
  for (const auto& up : ups) {
    EXPECT_EQ(up.info.incarnation.value() >> 16, 3u);
    EXPECT_EQ(up.info.device, "fake");
    EXPECT_EQ(up.info.activity, Activity::kIdle);
  }
  ASSERT_EQ(workers_.newest(0).heard_count(MessageType::kWorkerJob), 1u);
  auto job = protocol::from_frame<protocol::WorkerJob>(workers_.newest(0).heard[0].frame);
  ASSERT_OK(job);
  EXPECT_EQ(job->lease_ms, 1000u);
  EXPECT_EQ(job->beat_ms, 250u);
  EXPECT_EQ(job->job.toml, "[run]\n");
  pass(2_s);
  EXPECT_GE(heard<protocol::Beat>().size(), 8u);
  EXPECT_GE(workers_.newest(0).heard_count(MessageType::kBeatAck), 30u);
  EXPECT_FALSE(outcome_.has_value());
}

TEST_F(AgentTest, ABeatTellsTheNewestStep) {
  start();
  workers_.newest(0).step = base::Step(12);
  workers_.newest(1).step = base::Step(11);
  pass(1_s);
  EXPECT_EQ(heard<protocol::Beat>().back().step, base::Step(12));
}

TEST_F(AgentTest, PassesMessagesBothWays) {
  start();
  tell(0, protocol::Fence{.why = "new epoch"}, kEpoch);
  pass(50_ms);
  ASSERT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 1u);
  EXPECT_TRUE(std::any_of(workers_.newest(0).heard.begin(), workers_.newest(0).heard.end(),
                          [](const Heard& h) {
                            return h.frame.type == static_cast<uint16_t>(MessageType::kFence) &&
                                   h.frame.stamp.epoch == kEpoch;
                          }));
  EXPECT_EQ(workers_.newest(1).heard_count(MessageType::kFence), 0u);
  from_worker(0, protocol::StateTold{}, kEpoch);
  pass(50_ms);
  const auto messages = worker_messages();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0].worker, base::WorkerId(0));
  EXPECT_EQ(messages[0].incarnation, workers_.newest(0).start.incarnation);
  EXPECT_EQ(messages[0].epoch, kEpoch);
  EXPECT_EQ(messages[0].type, MessageType::kStateTold);
}

TEST_F(AgentTest, KnowsWhatItsWorkersDo) {
  start();
  const auto activity = [this](uint32_t worker) { return agent().workers()[worker].activity; };
  tell(0, protocol::Prepare{.plan = plan()}, kEpoch);
  pass(50_ms);
  EXPECT_EQ(activity(0), Activity::kPreparing);
  EXPECT_EQ(activity(1), Activity::kIdle);
  from_worker(0, protocol::Loaded{}, kEpoch);
  pass(50_ms);
  EXPECT_EQ(activity(0), Activity::kLoaded);
  tell(0, protocol::Go{}, kEpoch);
  pass(50_ms);
  EXPECT_EQ(activity(0), Activity::kRunning);
  EXPECT_EQ(agent().workers()[0].epoch, kEpoch);
  from_worker(0, protocol::Stopped{.step = base::Step(3)}, kEpoch);
  pass(50_ms);
  EXPECT_EQ(activity(0), Activity::kStopped);
  tell(0, protocol::Fence{}, kEpoch.next());
  pass(50_ms);
  EXPECT_EQ(activity(0), Activity::kIdle);
  from_worker(0, protocol::Finished{}, kEpoch);  // too late: of the epoch before
  pass(50_ms);
  EXPECT_EQ(activity(0), Activity::kIdle);
}

TEST_F(AgentTest, AMessageForAnOldIncarnationIsDropped) {
  start();
  const base::Incarnation old = workers_.newest(0).start.incarnation;
  on("node", [this] { workers_.newest(0).end("signal 11 (Segmentation fault)"); });
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerUp>().size() == 3; }));
  say(to_worker(0, old, protocol::Go{}), kEpoch);
  pass(100_ms);
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kGo), 0u);
  EXPECT_EQ(agent().workers()[0].activity, Activity::kIdle);
}

TEST_F(AgentTest, AnOrderKeepsItsBudgetOnItsWay) {
  start();
  rpc::Frame frame = protocol::to_frame(
      to_worker(0, workers_.newest(0).start.incarnation, protocol::Fence{}), {.epoch = kEpoch});
  frame.stamp.budget_ms = 4321;
  on("coordinator", [this, frame] { coordinator_->say(frame); });
  pass(50_ms);
  ASSERT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 1u);
  for (const Heard& h : workers_.newest(0).heard) {
    if (h.frame.type != static_cast<uint16_t>(MessageType::kFence)) continue;
    EXPECT_EQ(h.frame.stamp.budget_ms, 4321u);
  }
}

TEST_F(AgentTest, AMessageThatIsNotForWorkersIsDropped) {
  start();
  tell(0, protocol::EndWorker{}, kEpoch);
  pass(100_ms);
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kEndWorker), 0u);
  EXPECT_TRUE(workers_.newest(0).is_running);
}

TEST_F(AgentTest, RejoinsARestartedCoordinatorWithTheSameIncarnation) {
  start();
  tell(0, protocol::Prepare{.plan = plan()}, kEpoch);
  tell(0, protocol::Go{}, kEpoch);
  pass(100_ms);
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  pass(300_ms);
  from_worker(0, protocol::Finished{.step = base::Step(9)}, kEpoch);
  pass(100_ms);
  workers_.newest(0).step = base::Step(9);
  stage_.port = 9;  // it may come back elsewhere
  world_.host("coordinator").restart();
  ASSERT_TRUE(until([this] { return stage_.joins.size() == 2; }, 3_s));
  EXPECT_EQ(stage_.join_incarnations[1], base::Incarnation(3));
  EXPECT_EQ(stage_.joins[1].job_id, "job");
  ASSERT_EQ(stage_.joins[1].workers.size(), 2u);
  EXPECT_EQ(stage_.joins[1].workers[0].activity, Activity::kFinished);
  EXPECT_EQ(stage_.joins[1].workers[0].epoch, kEpoch);
  EXPECT_EQ(stage_.joins[1].workers[1].activity, Activity::kIdle);
  pass(500_ms);
  ASSERT_EQ(worker_messages().size(), 1u) << "what was said meanwhile comes after the welcome";
  EXPECT_EQ(worker_messages()[0].type, MessageType::kFinished);
  EXPECT_EQ(workers_.count(0), 1u) << "a running worker is not started again";
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 0u);
}

TEST_F(AgentTest, ReconnectsWhenNoWelcomeComes) {
  stage_.answers = false;
  boot_coordinator();
  boot_node();
  pass(4_s);
  EXPECT_EQ(stage_.joins.size(), 1u);
  stage_.answers = true;
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerUp>().size() == 2; }));
}

TEST_F(AgentTest, WaitsForACoordinatorThatIsNotThereYet) {
  boot_node();
  pass(20_s);
  boot_coordinator();
  ASSERT_TRUE(until([this] { return stage_.joins.size() == 1; }, 2_s)) << "back-off ends at 1 s";
}

TEST_F(AgentTest, FencesOnceWhenLeaseAndStepsStandStill) {
  start();
  tell(0, protocol::Go{}, kEpoch);
  pass(100_ms);
  stage_.acks = false;
  pass(5_s);
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 1u);
  EXPECT_TRUE(workers_.newest(0).is_running);
  EXPECT_EQ(agent().workers()[0].activity, Activity::kIdle);
  stage_.acks = true;
  pass(2_s);
  stage_.acks = false;
  pass(3_s);
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 2u) << "another silence";
}

TEST_F(AgentTest, DoesNotFenceWhileStepsGoOn) {
  start();
  tell(0, protocol::Go{}, kEpoch);
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  for (uint64_t step = 1; step < 50; ++step) {
    workers_.newest(0).step = base::Step(step);
    pass(200_ms);
  }
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 0u);
  pass(5_s);
  EXPECT_EQ(workers_.newest(0).heard_count(MessageType::kFence), 1u);
}

TEST_F(AgentTest, ConnectsAgainWhenAcksStayAway) {
  start();
  stage_.acks = false;
  pass(8_s);
  EXPECT_GE(stage_.joins.size(), 2u);
}

TEST_F(AgentTest, EndsAfterALongSilence) {
  start();
  world_.host("coordinator").kill(chaos::Crash::kPower);
  pass(9 * 60_s);
  EXPECT_FALSE(outcome_.has_value());
  ASSERT_TRUE(until([this] { return outcome_.has_value(); }, 2 * 60_s));
  EXPECT_THAT(*outcome_, StatusIs(StatusCode::kAborted, HasSubstr("node 4")));
  EXPECT_FALSE(workers_.newest(0).is_running);
}

TEST_F(AgentTest, FindsAStoppedWorkerByItsMissingBeats) {
  start();
  workers_.newest(1).is_paused = true;
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerDown>().size() == 1; }, 2_s));
  const auto down = heard<protocol::WorkerDown>()[0];
  EXPECT_EQ(down.worker, base::WorkerId(1));
  EXPECT_THAT(down.how, HasSubstr("no beat for 1."));
  EXPECT_TRUE(workers_.started[1][0]->is_running);
  ASSERT_TRUE(until([this] { return !workers_.started[1][0]->is_running; }, 12_s));
  EXPECT_TRUE(workers_.newest(0).is_running);
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerUp>().size() == 3; }, 3_s));
  EXPECT_EQ(heard<protocol::WorkerDown>().size(), 1u) << "told once";
}

TEST_F(AgentTest, AWorkerThatSpeaksAgainIsTheSameWorker) {
  start();
  workers_.newest(1).is_paused = true;
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerDown>().size() == 1; }, 2_s));
  workers_.newest(1).is_paused = false;
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerUp>().size() == 3; }, 2_s));
  EXPECT_EQ(heard<protocol::WorkerUp>()[2].info.incarnation,
            heard<protocol::WorkerDown>()[0].incarnation);
  EXPECT_TRUE(workers_.started[1][0]->is_running);
}

TEST_F(AgentTest, AnAgentThatWasStoppedItselfSparesItsWorkers) {
  start();
  world_.host("node").pause();
  pass(5_s);
  world_.host("node").resume();
  pass(2_s);
  EXPECT_TRUE(heard<protocol::WorkerDown>().empty());
}

TEST_F(AgentTest, RestartsADeadWorkerLaterAndLaterThenNoMore) {
  start();
  std::vector<base::Nanos> waits;
  for (size_t life = 1; life <= 3; ++life) {
    on("node", [this] { workers_.newest(0).end("exit code 7"); });
    const base::Nanos died = world_.now();
    ASSERT_TRUE(until([this, life] { return workers_.count(0) == life + 1; }, 10_s));
    waits.push_back(world_.now() - died);
    pass(100_ms);
  }
  EXPECT_NEAR(base::to_ms(waits[0]), 1000, 150);
  EXPECT_NEAR(base::to_ms(waits[1]), 2000, 150);
  EXPECT_NEAR(base::to_ms(waits[2]), 4000, 150);
  on("node", [this] { workers_.newest(0).end("exit code 7"); });
  pass(120_s);
  EXPECT_EQ(workers_.count(0), 4u);
  const auto downs = heard<protocol::WorkerDown>();
  ASSERT_EQ(downs.size(), 4u);
  EXPECT_EQ(downs[0].how, "exit code 7");
  EXPECT_NE(downs[0].incarnation, downs[1].incarnation);
  on("node", [this] { agent().revive(); });
  EXPECT_EQ(workers_.count(0), 5u);
  EXPECT_EQ(workers_.count(1), 1u);
}

TEST_F(AgentTest, AWorkerThatCannotBeStartedIsTold) {
  workers_.starts_that_fail[1] = 2;
  boot_coordinator();
  boot_node();
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerUp>().size() == 2; }, 10_s));
  const auto downs = heard<protocol::WorkerDown>();
  ASSERT_EQ(downs.size(), 2u);
  EXPECT_EQ(downs[0].how, "cannot start it");
}

TEST_F(AgentTest, AWorkerThatLeavesItsAgentButLivesIsEnded) {
  start();
  workers_.newest(0).closes_only = true;
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerDown>().size() == 1; }, 3_s));
  EXPECT_THAT(heard<protocol::WorkerDown>()[0].how, HasSubstr("left its agent"));
  EXPECT_FALSE(workers_.started[0][0]->is_running);
}

TEST_F(AgentTest, AWorkerThatSaysWhatIsNotForItIsEnded) {
  start();
  from_worker(0, protocol::Go{}, kEpoch);
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerDown>().size() == 1; }, 1_s));
  EXPECT_THAT(heard<protocol::WorkerDown>()[0].how, HasSubstr("not for a worker"));
}

TEST_F(AgentTest, EndWorkerKillsThatProcessOnly) {
  start();
  const base::Incarnation incarnation = workers_.newest(0).start.incarnation;
  say(protocol::EndWorker{.target = {base::WorkerId(0), incarnation.next().next()}, .why = "no"});
  pass(100_ms);
  EXPECT_TRUE(workers_.newest(0).is_running);
  say(protocol::EndWorker{.target = {base::WorkerId(0), incarnation}, .why = "does not answer"});
  pass(100_ms);
  EXPECT_FALSE(workers_.newest(0).is_running);
  ASSERT_EQ(heard<protocol::WorkerDown>().size(), 1u);
  EXPECT_EQ(heard<protocol::WorkerDown>()[0].how, "does not answer");
}

TEST_F(AgentTest, ADismissalLetsWorkersLeave) {
  start();
  say(protocol::Dismiss{});
  ASSERT_TRUE(until([this] { return outcome_.has_value(); }, 2_s));
  EXPECT_OK(*outcome_);
  for (uint32_t w = 0; w < 2; ++w) {
    EXPECT_EQ(workers_.newest(w).heard_count(MessageType::kDismiss), 1u);
    EXPECT_FALSE(workers_.newest(w).is_running);
    EXPECT_EQ(workers_.count(w), 1u);
  }
}

TEST_F(AgentTest, AWorkerThatDoesNotLeaveIsKilled) {
  workers_.ignore_dismiss = true;
  start();
  say(protocol::Dismiss{.code = static_cast<uint32_t>(StatusCode::kDataLoss), .why = "digests"});
  pass(4_s);
  EXPECT_FALSE(outcome_.has_value());
  ASSERT_TRUE(until([this] { return outcome_.has_value(); }, 2_s));
  EXPECT_THAT(*outcome_, StatusIs(StatusCode::kDataLoss, "digests"));
  EXPECT_FALSE(workers_.newest(0).is_running);
}

TEST_F(AgentTest, ANodeThatHasBeenReplacedEndsAtOnce) {
  workers_.ignore_dismiss = true;
  start();
  stage_.refuses =
      protocol::Dismiss{.code = static_cast<uint32_t>(StatusCode::kAborted), .why = "replaced"};
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  world_.host("coordinator").restart();
  ASSERT_TRUE(until([this] { return outcome_.has_value(); }, 2_s));
  EXPECT_THAT(*outcome_, StatusIs(StatusCode::kAborted, "replaced"));
  EXPECT_FALSE(workers_.newest(0).is_running);
}

TEST_F(AgentTest, StopKillsTheWorkersAndMayBeCalledTwice) {
  start();
  on("node", [this] {
    agent().stop(base::cancelled("interrupted"));
    agent().stop(base::internal("again"));
  });
  ASSERT_TRUE(until([this] { return outcome_.has_value(); }, 3_s));
  EXPECT_THAT(*outcome_, StatusIs(StatusCode::kCancelled, "interrupted"));
  EXPECT_FALSE(workers_.newest(0).is_running);
}

TEST_F(AgentTest, AWelcomeWithoutAWorkerEndsIt) {
  start();
  stage_.welcome.workers = {base::WorkerId(1), base::WorkerId(2)};
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  world_.host("coordinator").restart();
  ASSERT_TRUE(until([this] { return workers_.count(2) == 1; }, 3_s));
  EXPECT_FALSE(workers_.newest(0).is_running);
  EXPECT_TRUE(workers_.newest(1).is_running);
  pass(10_s);
  EXPECT_EQ(workers_.count(0), 1u);
}

base::Task<base::Status> knock(chaos::SimHost& host, base::Address agent, std::string secret,
                               rpc::PeerIdentity self) {
  const base::Nanos deadline = host.clock().now() + 5_s;
  auto raw = co_await host.network().connect(agent, deadline);
  CO_RETURN_IF_ERROR(raw.status());
  rpc::MessageChannel channel(std::move(raw).value());
  base::SeededRandom random(9);
  CO_RETURN_IF_ERROR(co_await rpc::offer_handshake(channel, secret, self, random, host.clock()));
  protocol::WorkerUp up;
  up.info.worker = base::WorkerId(self.number);
  up.info.incarnation = self.incarnation;
  const rpc::Frame frame = protocol::to_frame(up, {});
  CO_RETURN_IF_ERROR(co_await channel.send(frame, deadline));
  auto answer = co_await channel.receive(deadline);
  co_return answer.status();
}

TEST_F(AgentTest, RefusesStrangers) {
  start();
  const WorkerStart real = workers_.newest(0).start;
  const auto refused = [&](const std::string& secret, const rpc::PeerIdentity& self) {
    chaos::SimHost& host = world_.host("stranger");
    const base::Status status = world_.run(host, knock(host, real.agent, secret, self));
    EXPECT_FALSE(status.is_ok());
    EXPECT_TRUE(workers_.newest(0).is_running);
    EXPECT_EQ(heard<protocol::WorkerUp>().size(), 2u);
  };
  using rpc::PeerRole;
  refused("guess", {PeerRole::kWorker, 0, real.incarnation});
  refused(kSecret, {PeerRole::kAgent, 0, real.incarnation});
  refused(kSecret, {PeerRole::kWorker, 0, real.incarnation.next().next()});
  refused(kSecret, {PeerRole::kWorker, 9, real.incarnation});
  refused(kSecret, {PeerRole::kWorker, 0, real.incarnation});  // it is there already
}

TEST_F(AgentTest, AWorkerThatNeverComesUpIsEnded) {
  options_.worker_start_timeout = 3_s;
  options_.secret = "other";  // workers cannot prove themselves, nor can the agent
  boot_coordinator();
  boot_node();
  pass(5_s);
  EXPECT_TRUE(stage_.joins.empty());
  EXPECT_FALSE(outcome_.has_value());
}

}  // namespace
}  // namespace perdure::runtime::agent
