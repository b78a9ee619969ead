// Whole lives of a job: its end, losses of nodes and workers, what it tells observers.

#include <nlohmann/json.hpp>

#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using base::StatusCode;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StatusIs;
using ::testing::UnorderedElementsAre;

uint32_t to_ms(base::Nanos time) {
  return static_cast<uint32_t>(time / std::chrono::milliseconds(1));
}

TEST_F(CoordinatorTest, AJobRunsFromTheJoinToTheDismissal) {
  boot_coordinator();
  boot_agent(0);
  boot_agent(1);
  EXPECT_OK(wait_for_end());
  expect_whole_ledger();
  EXPECT_EQ(record_.plans.size(), 1u);
  EXPECT_THAT(record_.prepared, UnorderedElementsAre(base::Rank(0), base::Rank(1)));
  EXPECT_EQ(std::set<base::Rank>(record_.finished.begin(), record_.finished.end()),
            (std::set<base::Rank>{base::Rank(0), base::Rank(1)}));
  for (const uint32_t n : {0u, 1u}) {
    ASSERT_TRUE(nodes_[n].dismissed.has_value());
    EXPECT_EQ(nodes_[n].dismissed->code, 0u);
    EXPECT_EQ(nodes_[n].incarnation, base::Incarnation(1));
    EXPECT_EQ(nodes_[n].job_id, "job-1");
  }
  EXPECT_EQ(journal_.records.front().kind, RecordKind::kJob);
  EXPECT_EQ(journal_.records.back().kind, RecordKind::kEnded);
}

TEST_F(CoordinatorTest, TheWelcomeSaysWhatTheAgentNeeds) {
  start_job();
  const auto welcome = protocol::from_frame<protocol::NodeWelcome>(nodes_[1].heard.at(0));
  ASSERT_OK(welcome);
  EXPECT_THAT(welcome->workers, ElementsAre(base::WorkerId(1)));
  EXPECT_EQ(welcome->lease_ms, 1000u);
  EXPECT_EQ(welcome->beat_ms, 250u);
  EXPECT_EQ(welcome->job.toml, options_.job.toml);
  finish_job();
}

TEST_F(CoordinatorTest, OrdersSayHowLongTheirPhaseLasts) {
  start_job();
  std::map<MessageType, uint32_t> budgets;
  for (const rpc::Frame& frame : nodes_[1].heard) {
    const auto order = protocol::from_frame<protocol::ToWorkers>(frame);
    if (order.is_ok()) budgets[order->type] = frame.stamp.budget_ms;
  }
  EXPECT_EQ(budgets.at(MessageType::kFence), to_ms(options_.machine.phase_timeout));
  EXPECT_GT(budgets.at(MessageType::kLoad), to_ms(options_.machine.phase_timeout));
  EXPECT_EQ(budgets.at(MessageType::kGo), 0u) << "training has no end";
  finish_job();
}

TEST_F(CoordinatorTest, BeatsAreAcknowledgedAndKeepTheLease) {
  start_job();
  pass(20_s);
  EXPECT_GE(heard(0, MessageType::kBeatAck), 70u);
  EXPECT_EQ(record_.count("node.lost"), 0u);
  finish_job();
}

TEST_F(CoordinatorTest, ASilentNodeIsLostAndTheOthersGoOn) {
  start_job();
  train_to(2);
  nodes_[1].beats = false;
  nodes_[1].comes_again = false;
  ASSERT_TRUE(until([this] { return record_.plans.size() == 2; }, 2_s));
  EXPECT_EQ(record_.plans.back().members.size(), 1u);
  EXPECT_EQ(record_.plans.back().resume.step, base::Step(2));
  finish_job();
}

TEST_F(CoordinatorTest, ANodeWhoseConnectionIsLostIsLostAtOnce) {
  start_job();
  train_to(2);
  const base::Nanos before = world_.now();
  world_.host("n1").kill(chaos::Crash::kProcess);
  ASSERT_TRUE(until([this] { return record_.plans.size() == 2; }, 2_s));
  EXPECT_LT(world_.now() - before, 500_ms);
  finish_job();
}

TEST_F(CoordinatorTest, AStandByNodeTakesTheLostRole) {
  start_job();
  boot_agent(2);
  train_to(2);
  world_.host("n0").kill(chaos::Crash::kPower);
  ASSERT_TRUE(until([this] { return record_.plans.size() == 2; }, 5_s));
  const auto& members = record_.plans.back().members;
  ASSERT_EQ(members.size(), 2u);
  finish_job();
  EXPECT_EQ(nodes_[2].dismissed->code, 0u);
}

TEST_F(CoordinatorTest, StandBysAreDismissedWhenTheJobIsDone) {
  start_job();
  boot_agent(2);
  pass(1_s);
  finish_job();
  ASSERT_TRUE(nodes_[2].dismissed.has_value());
  EXPECT_EQ(nodes_[2].dismissed->code, 0u);
}

TEST_F(CoordinatorTest, AWorkerThatDiesIsReplacedByItsAgent) {
  start_job();
  train_to(2);
  const protocol::WorkerDown down{
      .worker = base::WorkerId(1), .incarnation = base::Incarnation(1), .how = "signal 9 (Killed)"};
  on_agent(1, [&](AgentProcess& agent) { agent.say(down); });
  ASSERT_TRUE(until([this] { return record_.plans.size() == 2; }));
  new_process(1);
  const protocol::WorkerUp up{.info = nodes_[1].workers[1].info};
  on_agent(1, [&](AgentProcess& agent) { agent.say(up); });
  ASSERT_TRUE(until([this] { return record_.plans.size() == 3; }));
  EXPECT_EQ(record_.plans.back().members.size(), 2u);
  finish_job();
}

TEST_F(CoordinatorTest, AWorkerThatEndsAgainAndAgainBeforeTheStartEndsTheJob) {
  boot_coordinator();
  nodes_[0].workers.clear();
  boot_agent(0);
  ASSERT_TRUE(until([this] { return nodes_[0].incarnation.value() != 0; }));
  const protocol::WorkerDown down{
      .worker = base::WorkerId(0), .incarnation = base::Incarnation(1), .how = "exit code 2"};
  for (uint32_t i = 0; i < options_.early_exits_max; ++i) {
    EXPECT_FALSE(outcome().has_value());
    on_agent(0, [&](AgentProcess& agent) { agent.say(down); });
    pass(100_ms);
  }
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kAborted, "worker 0 ended early: exit code 2"));
}

TEST_F(CoordinatorTest, AWorkerThatIsKilledBeforeTheStartDoesNotEndTheJob) {
  boot_coordinator();
  boot_agent(0);
  ASSERT_TRUE(until([this] { return nodes_[0].incarnation.value() != 0; }));
  const protocol::WorkerDown down{
      .worker = base::WorkerId(0), .incarnation = base::Incarnation(1), .how = "signal 9 (Killed)"};
  on_agent(0, [&](AgentProcess& agent) { agent.say(down); });
  pass(1_s);
  EXPECT_FALSE(outcome().has_value());
  new_process(0);
  const protocol::WorkerUp up{.info = nodes_[0].workers[0].info};
  on_agent(0, [&](AgentProcess& agent) { agent.say(up); });
  boot_agent(1);
  EXPECT_OK(wait_for_end());
}

TEST_F(CoordinatorTest, AnAgentThatConnectsAnewKeepsItsNumberAndItsWorkers) {
  start_job();
  train_to(1);
  world_.host("n1").kill(chaos::Crash::kProcess);
  world_.host("n1").restart();  // with the incarnation that it had: as after a lost connection
  ASSERT_TRUE(until([this] { return nodes_[1].connections == 2; }));
  ASSERT_TRUE(until([this] { return record_.plans.back().epoch.value() > 1; }));
  pass(2_s);
  EXPECT_EQ(nodes_[1].incarnation, base::Incarnation(1));
  EXPECT_EQ(record_.plans.back().members.size(), 2u);
  finish_job();
}

TEST_F(CoordinatorTest, ANewAgentOfANodeGetsTheNextNumber) {
  start_job();
  world_.host("n1").kill(chaos::Crash::kProcess);
  nodes_[1].incarnation = {};
  nodes_[1].job_id = "";
  new_process(1);
  world_.host("n1").restart();
  ASSERT_TRUE(until([this] { return nodes_[1].incarnation == base::Incarnation(2); }));
  pass(2_s);
  EXPECT_EQ(record_.plans.back().members.size(), 2u);
  finish_job();
}

TEST_F(CoordinatorTest, AWorkerThatDiedWhileItsNodeWasAwayIsALoss) {
  start_job();
  train_to(1);
  world_.host("n1").kill(chaos::Crash::kProcess);
  nodes_[1].workers.clear();
  world_.host("n1").restart();
  ASSERT_TRUE(until([this] { return record_.plans.size() == 2; }));
  EXPECT_EQ(record_.plans.back().members.size(), 1u);
  finish_job();
}

TEST_F(CoordinatorTest, AStepWithOtherBitsEndsTheJob) {
  start_job();
  train_to(2);
  const protocol::StepReport again{.step = base::Step(2), .digest_before = 1234};
  on_agent(0, [&](AgentProcess& agent) { agent.tell(0, again, base::Epoch(1)); });
  EXPECT_THAT(wait_for_end(),
              StatusIs(StatusCode::kDataLoss, "step 2 was run again and gave other bits"));
  EXPECT_EQ(nodes_[1].dismissed->code, static_cast<uint32_t>(StatusCode::kDataLoss));
}

TEST_F(CoordinatorTest, AGapInTheReportsIsAskedFor) {
  start_job();
  nodes_[0].obeys = nodes_[1].obeys = false;
  nodes_[0].beats = false;  // what it hears is the answer
  pass(600_ms);
  const protocol::StepReport third{.step = base::Step(3), .digest_before = base::mix64(3)};
  const size_t before = heard(0, MessageType::kToWorkers);
  on_agent(0, [&](AgentProcess& agent) { agent.tell(0, third, base::Epoch(1)); });
  pass(100_ms);
  EXPECT_EQ(heard(0, MessageType::kToWorkers), before + 1);
  const auto order = protocol::from_frame<protocol::ToWorkers>(nodes_[0].heard.back());
  ASSERT_OK(order);
  EXPECT_EQ(order->type, MessageType::kAskReports);
  EXPECT_EQ(rpc::from_bytes<protocol::AskReports>(order->payload).value().reported, base::Step(0));
  EXPECT_THAT(record_.steps, IsEmpty());
  on_agent(0, [&](AgentProcess& agent) { agent.tell(0, third, base::Epoch(1)); });
  EXPECT_EQ(heard(0, MessageType::kToWorkers), before + 1);  // not for every report
  nodes_[0].obeys = nodes_[1].obeys = true;
  nodes_[0].beats = true;
  pass(100_ms);
  finish_job();
}

// The reports are lost on their way, the end is heard: the steps are asked for before it is taken.
TEST_F(CoordinatorTest, TheEndWaitsForTheReportsOfAllSteps) {
  start_job();
  pass(1_s);
  for (const uint32_t n : {0u, 1u}) {
    auto& body = nodes_[n].workers[n];
    on_host("n" + std::to_string(n), [&] { body.state.committed.step = base::Step(play_.steps); });
    body.info.activity = protocol::Activity::kFinished;
    const protocol::Finished finished{.step = base::Step(play_.steps)};
    on_agent(n, [&](AgentProcess& agent) { agent.tell(n, finished, base::Epoch(1)); });
  }
  EXPECT_OK(wait_for_end());
  expect_whole_ledger();
}

TEST_F(CoordinatorTest, EvaluationsOfAnOldEpochAreNotRecorded) {
  start_job();
  const protocol::EvaluationReport evaluation{.step = base::Step(1), .loss = 2.0};
  on_agent(0, [&](AgentProcess& agent) {
    agent.tell(0, evaluation, base::Epoch(0));
    agent.tell(0, evaluation, base::Epoch(1));
  });
  pass(100_ms);
  EXPECT_EQ(record_.evaluations.size(), 1u);
  finish_job();
}

TEST_F(CoordinatorTest, AnEngineThatFailsEndsTheJobWithItsReason) {
  start_job();
  const protocol::Stopped stopped{.code = static_cast<uint32_t>(StatusCode::kNotFound),
                                  .text = "no file tokens.bin"};
  on_agent(1, [&](AgentProcess& agent) { agent.tell(1, stopped, base::Epoch(1)); });
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kNotFound, "worker 1: no file tokens.bin"));
  EXPECT_EQ(nodes_[0].dismissed->why, "worker 1: no file tokens.bin");
}

TEST_F(CoordinatorTest, StoppedFromOutsideAllAreDismissed) {
  start_job();
  on_host("coordinator", [this] { coordinator_->stop(base::cancelled("Ctrl-C")); });
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kCancelled, "Ctrl-C"));
  for (const uint32_t n : {0u, 1u}) EXPECT_EQ(nodes_[n].dismissed->why, "Ctrl-C");
}

TEST_F(CoordinatorTest, AnAgentThatDoesNotLeaveDelaysTheEndOnlyForAWhile) {
  start_job();
  world_.host("n1").pause();
  on_host("coordinator", [this] { coordinator_->stop(base::cancelled("Ctrl-C")); });
  const base::Nanos before = world_.now();
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kCancelled));
  EXPECT_LE(world_.now() - before, options_.dismiss_timeout + 10_ms);
}

TEST_F(CoordinatorTest, AMemberThatIsLateIsToldToEnd) {
  options_.machine.load_timeout = 3_s;
  play_.train_to = 0;
  boot_coordinator();
  boot_agent(0);
  nodes_[1].obeys = false;
  boot_agent(1);
  boot_agent(2);
  options_.machine.phase_timeout = 3_s;
  ASSERT_TRUE(until([this] { return heard(1, MessageType::kEndWorker) == 1; }));
  const auto end = protocol::from_frame<protocol::EndWorker>(nodes_[1].heard.back());
  ASSERT_OK(end);
  EXPECT_EQ(end->target.worker, base::WorkerId(1));
  EXPECT_EQ(end->target.incarnation, base::Incarnation(1));
  EXPECT_EQ(end->why, "no answer while collecting");
  ASSERT_TRUE(until([this] { return record_.plans.size() == 1; }));
  finish_job();
}

TEST_F(CoordinatorTest, WithoutEnoughNodesTheMissingWorkersAreNamed) {
  boot_coordinator();
  boot_agent(0);
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("in time: 1")));
}

TEST_F(CoordinatorTest, AJobOfOneNode) {
  options_.nodes = 1;
  options_.machine.pipelines = 1;
  boot_coordinator();
  boot_agent(0);
  EXPECT_OK(wait_for_end());
  expect_whole_ledger();
}

// -- observers

TEST_F(CoordinatorTest, AnObserverIsToldTheStatus) {
  start_job();
  train_to(2);
  Stranger observer = stranger();
  ASSERT_OK(observer.shake({.role = rpc::PeerRole::kObserver}));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK(observer.send(protocol::StatusAsk{}));
    ASSERT_OK_AND_ASSIGN(const auto told, observer.expect<protocol::StatusTold>());
    const auto page = nlohmann::json::parse(told.json);
    EXPECT_EQ(page["job"], "job-1");
    EXPECT_EQ(page["phase"], "active");
    EXPECT_EQ(page["epoch"], 1);
    EXPECT_EQ(page["committed_step"], 2);
    EXPECT_EQ(page["nodes"].size(), 2u);
    EXPECT_EQ(page["nodes"][0]["alive"], true);
    EXPECT_EQ(page["nodes"][1]["workers"][0]["pid"], 101);
  }
  finish_job();
}

TEST_F(CoordinatorTest, AnObserverThatAsksForSomethingElseIsLeft) {
  start_job();
  Stranger observer = stranger();
  ASSERT_OK(observer.shake({.role = rpc::PeerRole::kObserver}));
  ASSERT_OK(observer.send(protocol::Beat{}));
  EXPECT_THAT(observer.receive(), StatusIs(StatusCode::kUnavailable));
  finish_job();
}

TEST_F(CoordinatorTest, AnObserverDoesNotKeepTheJobFromEnding) {
  start_job();
  Stranger observer = stranger();
  ASSERT_OK(observer.shake({.role = rpc::PeerRole::kObserver}));
  finish_job();
  EXPECT_THAT(observer.receive(), StatusIs(StatusCode::kUnavailable));
}

}  // namespace
}  // namespace perdure::runtime::coordinator
