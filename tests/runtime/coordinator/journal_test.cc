// The coordinator and its journal: errors end the job; after each record it may die and be started
// again.

#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;
using testing::StatusIs;

class JournalTest : public CoordinatorTest {
 protected:
  // A whole run with a recovery in it; how many records it wrote.
  size_t run_with_a_loss() {
    start_job();
    train_to(2);
    pass(2_s);
    world_.host("n1").kill(chaos::Crash::kProcess);
    EXPECT_TRUE(until([this] { return record_.plans.size() == 2; }));
    finish_job();
    return journal_.records.size();
  }
};

TEST_F(JournalTest, TheRecordsOfARunInTheirOrder) {
  run_with_a_loss();
  std::vector<RecordKind> kinds;
  for (const JournalRecord& record : journal_.records) kinds.push_back(record.kind);
  using enum RecordKind;
  const std::vector<RecordKind> begin = {kJob, kLife, kNode, kNode, kDecided, kActive};
  ASSERT_GE(kinds.size(), begin.size());
  EXPECT_EQ(std::vector<RecordKind>(kinds.begin(), kinds.begin() + 6), begin);
  EXPECT_EQ(kinds[6], kProgress);
  EXPECT_EQ(kinds.back(), kEnded);
}

TEST_F(JournalTest, AJournalThatCannotBeReadEndsTheProcess) {
  journal_.read_error = base::data_loss("bad block");
  boot_coordinator();
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kDataLoss, "bad block"));
}

TEST_F(JournalTest, ARecordThatCannotBeReadEndsTheProcess) {
  for (int kind = 1; kind <= 8; ++kind) {
    outcome_.reset();
    journal_.records = {{static_cast<RecordKind>(kind), rpc::Payload(1, std::byte{7})}};
    if (kind == 1) {
      boot_coordinator();
    } else {
      restart_coordinator();
    }
    EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kDataLoss)) << kind;
    world_.host("coordinator").kill(chaos::Crash::kProcess);
  }
}

TEST_F(JournalTest, TheJournalOfAnotherJobIsRefused) {
  start_job();
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  options_.job.overrides = {"optimizer.lr=1"};
  restart_coordinator();
  EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kInvalidArgument,
                                       HasSubstr("the journal belongs to another job (job-1)")));
}

// What cannot be written down must not act.
TEST_F(JournalTest, EveryRecordThatCannotBeWrittenEndsTheJob) {
  const size_t records = 7;  // the first ones of a run, up to progress
  for (size_t n = 0; n < records; ++n) {
    SCOPED_TRACE(n);
    if (n > 0) {
      for (const char* host : {"coordinator", "n0", "n1"}) {
        if (world_.host(host).is_alive()) world_.host(host).kill(chaos::Crash::kProcess);
      }
    }
    outcome_.reset();
    record_ = {};
    journal_ = {};
    journal_.refuses_at = n;
    for (uint32_t node = 0; node < 2; ++node) {
      nodes_[node] = {.node = base::NodeId(node)};
      new_process(node);
    }
    play_.train_to = 2;
    if (n == 0) {
      boot_coordinator();
      boot_agent(0);
      boot_agent(1);
    } else {
      for (const char* host : {"coordinator", "n0", "n1"}) world_.host(host).restart();
    }
    EXPECT_THAT(wait_for_end(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("no space")));
    for (const uint32_t node : {0u, 1u}) {
      for (const rpc::Frame& frame : nodes_[node].heard) {
        if (frame.type != static_cast<uint16_t>(MessageType::kToWorkers)) continue;
        const auto order = protocol::from_frame<protocol::ToWorkers>(frame);
        EXPECT_FALSE(n <= 4 && order->type == MessageType::kPrepare);
        EXPECT_FALSE(n <= 5 && order->type == MessageType::kGo);
      }
    }
  }
}

// -- dying at each record

class RestartTest : public JournalTest,
                    public ::testing::WithParamInterface<std::tuple<int, bool>> {};

INSTANTIATE_TEST_SUITE_P(EachRecord, RestartTest,
                         ::testing::Combine(::testing::Range(0, 11), ::testing::Bool()),
                         [](const auto& each) {
                           return "Record" + std::to_string(std::get<0>(each.param)) +
                                  (std::get<1>(each.param) ? "Written" : "Lost");
                         });

TEST_P(RestartTest, TheJobEndsAsIfNothingHadHappened) {
  const auto [index, is_written] = GetParam();
  (is_written ? journal_.dies_after : journal_.dies_before) = static_cast<size_t>(index);
  play_.steps = 6;
  play_.train_to = 2;
  boot_coordinator();
  boot_agent(0);
  boot_agent(1);
  boot_agent(2);
  uint32_t restarts = 0;
  // A coordinator that is down is started again, as a supervisor would.
  const auto pass_with_supervisor = [&](base::Nanos time) {
    const base::Nanos until_when = world_.now() + time;
    while (world_.now() < until_when && !outcome().has_value()) {
      pass(100_ms);
      if (world_.host("coordinator").is_alive()) continue;
      restart_coordinator();
      ++restarts;
    }
  };
  pass_with_supervisor(10_s);
  for (const uint32_t n : {0u, 1u, 2u}) {  // one of them is a member that trains
    if (nodes_[n].workers.at(n).info.activity != protocol::Activity::kRunning) continue;
    world_.host("n" + std::to_string(n)).kill(chaos::Crash::kProcess);
    break;
  }
  pass_with_supervisor(10_s);
  play_.train_to = 6;
  for (auto& [node, agent] : agents_) {
    if (world_.host("n" + std::to_string(node)).is_alive())
      on_agent(node, [](AgentProcess& a) { a.train(); });
  }
  pass_with_supervisor(60_s);
  ASSERT_TRUE(outcome().has_value());
  EXPECT_OK(*outcome());
  expect_whole_ledger();
  EXPECT_EQ(restarts, 1u);
  std::set<uint64_t> decided;
  for (const JournalRecord& record : journal_.records) {
    if (record.kind != RecordKind::kDecided) continue;
    const auto plan = rpc::from_bytes<recovery::EpochPlan>(record.payload).value();
    EXPECT_TRUE(decided.insert(plan.epoch.value()).second) << "an epoch number was used twice";
  }
}

// -- the restarted one

TEST_F(JournalTest, ARunningEpochGoesOnUnderANewCoordinator) {
  start_job();
  train_to(2);
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  play_.train_to = 3;  // training needs no coordinator
  for (const uint32_t n : {0u, 1u}) on_agent(n, [](AgentProcess& a) { a.train(); });
  pass(500_ms);
  restart_coordinator();
  ASSERT_TRUE(until([this] { return record_.count("epoch.rejoined") == 1; }));
  pass(500_ms);
  EXPECT_EQ(record_.steps.size(), 3u);  // told again
  EXPECT_EQ(coordinator_->machine().epoch(), base::Epoch(1));
  EXPECT_EQ(record_.plans.size(), 1u);
  finish_job();
}

TEST_F(JournalTest, AJobThatFinishedWhileNobodyListenedEndsOk) {
  start_job();
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  play_.train_to = play_.steps;
  for (const uint32_t n : {0u, 1u}) on_agent(n, [](AgentProcess& a) { a.train(); });
  restart_coordinator();
  EXPECT_OK(wait_for_end());
  expect_whole_ledger();
}

TEST_F(JournalTest, AfterTheEndOthersAreToldTheEnd) {
  start_job();
  finish_job();
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  outcome_.reset();
  restart_coordinator();
  boot_agent(2);  // it slept through everything
  ASSERT_TRUE(until([this] { return nodes_[2].dismissed.has_value(); }));
  EXPECT_EQ(nodes_[2].dismissed->code, 0u);
  EXPECT_OK(wait_for_end());
}

TEST_F(JournalTest, ANodeNumberIsNeverGivenTwiceToDifferentProcesses) {
  start_job();
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  world_.host("n1").kill(chaos::Crash::kProcess);
  nodes_[1].incarnation = {};
  new_process(1);
  world_.host("n1").restart();
  restart_coordinator();
  ASSERT_TRUE(until([this] { return nodes_[1].incarnation.value() != 0; }));
  EXPECT_EQ(nodes_[1].incarnation, base::Incarnation(2));
  pass(10_s);
  finish_job();
}

}  // namespace
}  // namespace perdure::runtime::coordinator
