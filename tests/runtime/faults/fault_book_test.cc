#include "runtime/faults/fault_book.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::faults {
namespace {

using namespace base::literals;

constexpr ProcessInfo kCoordinator{ProcessRole::kCoordinator, 0, 10, 10};

ProcessInfo agent(uint32_t node) {
  const int pid = 20 + 10 * static_cast<int>(node);
  return {ProcessRole::kAgent, node, pid, pid};
}

// Two workers a node.
ProcessInfo worker(uint32_t number) {
  const int group = agent(number / 2).group;
  return {ProcessRole::kWorker, number, 100 + static_cast<int>(number), group};
}

class FaultBookTest : public ::testing::Test {
 protected:
  void open(const std::string& fault) {
    auto spec = parse_fault(fault);
    CHECK(spec.is_ok()) << spec.status();
    book_.emplace(std::vector<FaultSpec>{*spec});
    book_->add(kCoordinator);
    for (uint32_t node = 0; node < 2; ++node) book_->add(agent(node));
    for (uint32_t w = 0; w < 4; ++w) book_->add(worker(w));
  }
  std::vector<Strike> hit(const ProcessInfo& who, const std::string& point, uint64_t step = 20,
                          uint64_t epoch = 2) {
    return book_->on_hit({.who = who, .point = point, .step = step, .epoch = epoch});
  }

  std::optional<FaultBook> book_;
};

TEST_F(FaultBookTest, AWorkerIsStruckWhereItIsItselfAndOnce) {
  open("at=step:20,phase=reduce target=worker:2 do=kill");
  EXPECT_TRUE(hit(worker(1), "step.reduce").empty());
  EXPECT_TRUE(hit(worker(2), "step.reduce", 19).empty());
  EXPECT_TRUE(hit(worker(2), "step.vote").empty());
  EXPECT_EQ(book_->unused().size(), 1u);
  const auto strikes = hit(worker(2), "step.reduce");
  ASSERT_EQ(strikes.size(), 1u);
  ASSERT_EQ(strikes[0].acts.size(), 1u);
  EXPECT_EQ(strikes[0].acts[0].kind, FaultAct::Kind::kKill);
  EXPECT_EQ(strikes[0].acts[0].pid, worker(2).pid);
  EXPECT_EQ(strikes[0].answer, FaultAnswer::kGoOn);
  EXPECT_EQ(strikes[0].whom, "worker 2 (pid 102)");
  EXPECT_TRUE(hit(worker(2), "step.reduce").empty());
  EXPECT_TRUE(book_->unused().empty());
}

TEST_F(FaultBookTest, ANodeIsStruckByAnyOfItsWorkersAsAGroup) {
  open("at=step:20 target=node:1 do=stop:2");
  EXPECT_TRUE(hit(worker(0), "step.begin").empty());
  const auto strikes = hit(worker(3), "step.begin");
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].acts[0].kind, FaultAct::Kind::kStop);
  EXPECT_EQ(strikes[0].acts[0].pid, -agent(1).group);
  EXPECT_EQ(strikes[0].acts[0].resume_after, 2_s);
}

TEST_F(FaultBookTest, TheCoordinatorIsStruckWhenAnyWorkerIsThere) {
  open("at=step:20 target=coordinator do=kill");
  EXPECT_TRUE(hit(kCoordinator, "step.begin").empty());
  const auto strikes = hit(worker(3), "step.begin");
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].acts[0].pid, kCoordinator.pid);
}

TEST_F(FaultBookTest, TheJobIsTheCoordinatorAndAllNodes) {
  open("at=step:20 target=job do=stop:1");
  const auto strikes = hit(worker(0), "step.begin");
  ASSERT_EQ(strikes.size(), 1u);
  ASSERT_EQ(strikes[0].acts.size(), 3u);
  EXPECT_EQ(strikes[0].acts[0].pid, kCoordinator.pid);
  EXPECT_EQ(strikes[0].acts[1].pid, -agent(0).group);
  EXPECT_EQ(strikes[0].acts[2].pid, -agent(1).group);
}

TEST_F(FaultBookTest, EpochPointsAreTheCoordinatorsWhoeverIsTheTarget) {
  open("at=epoch:2,phase=prepare target=worker:1 do=kill");
  EXPECT_TRUE(hit(worker(1), "coordinator.prepare").empty());
  EXPECT_TRUE(hit(kCoordinator, "coordinator.prepare", 20, 1).empty());
  const auto strikes = hit(kCoordinator, "coordinator.prepare");
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].acts[0].pid, worker(1).pid);
}

TEST_F(FaultBookTest, TheSourceIsTheWorkerThatServes) {
  open("at=epoch:2,phase=transfer target=source do=kill");
  EXPECT_TRUE(hit(kCoordinator, "coordinator.transfer").empty());
  const auto strikes = hit(worker(3), "epoch.serve");
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].acts[0].pid, worker(3).pid);
  EXPECT_EQ(strikes[0].whom, "worker 3 (pid 103)");
}

TEST_F(FaultBookTest, WhatAProcessDoesToItselfIsAnAnswer) {
  open("at=step:20 target=worker:2 do=exit");
  EXPECT_EQ(hit(worker(2), "step.begin").at(0).answer, FaultAnswer::kExit);
  open("at=step:20 target=worker:2 do=drop");
  EXPECT_EQ(hit(worker(2), "step.begin").at(0).answer, FaultAnswer::kDrop);
  open("at=step:20 target=worker:2 do=slow:4");
  const auto strikes = hit(worker(2), "step.begin");
  EXPECT_EQ(strikes.at(0).answer, FaultAnswer::kSlow);
  EXPECT_EQ(strikes.at(0).factor, 4.0);
  EXPECT_TRUE(strikes.at(0).acts.empty());
}

TEST_F(FaultBookTest, WhatIsDoneToOthersIsASignal) {
  open("at=step:20 target=coordinator do=exit");
  EXPECT_EQ(hit(worker(2), "step.begin").at(0).acts.at(0).kind, FaultAct::Kind::kExit);
  open("at=epoch:2,phase=go target=node:0 do=drop");
  EXPECT_EQ(hit(kCoordinator, "coordinator.go").at(0).acts.at(0).kind, FaultAct::Kind::kDrop);
}

TEST_F(FaultBookTest, BringsANodeBackWhenAnyWorkerIsThere) {
  open("at=step:30 target=node:1 do=start");
  book_->remove(agent(1).pid);
  const auto strikes = hit(worker(0), "step.begin", 30);
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].acts.at(0).kind, FaultAct::Kind::kStartNode);
  EXPECT_EQ(strikes[0].acts.at(0).node, 1u);
}

TEST_F(FaultBookTest, BringsAWorkerBackThroughItsAgent) {
  open("at=step:30 target=worker:3 do=start");
  book_->remove(worker(3).pid);
  const auto strikes = hit(worker(0), "step.begin", 30);
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].acts.at(0).kind, FaultAct::Kind::kStartWorkers);
  EXPECT_EQ(strikes[0].acts.at(0).pid, agent(1).pid);
  open("at=step:30 target=worker:9 do=start");
  EXPECT_TRUE(hit(worker(0), "step.begin", 30).empty()) << "nobody knows where it ran";
  open("at=step:30 target=worker:3 do=start");
  book_->remove(agent(1).pid);
  EXPECT_TRUE(hit(worker(0), "step.begin", 30).empty()) << "its node is gone";
}

TEST_F(FaultBookTest, ATargetThatIsNotThereIsNotStruck) {
  open("at=epoch:2 target=worker:7 do=kill");
  EXPECT_TRUE(hit(kCoordinator, "coordinator.fence").empty());
  EXPECT_EQ(book_->unused(), (std::vector<std::string>{"at=epoch:2 target=worker:7 do=kill"}));
  open("at=epoch:2 target=node:1 do=kill");
  book_->remove(agent(1).pid);
  EXPECT_TRUE(hit(kCoordinator, "coordinator.fence").empty());
}

TEST_F(FaultBookTest, ANewerProcessTakesThePlace) {
  open("at=epoch:2 target=worker:1 do=kill");
  ProcessInfo second = worker(1);
  second.pid = 555;
  book_->add(second);
  book_->remove(worker(1).pid);
  EXPECT_EQ(hit(kCoordinator, "coordinator.fence").at(0).acts.at(0).pid, 555);
}

TEST_F(FaultBookTest, TimesAreDueOnce) {
  open("at=time:2s target=node:0 do=kill");
  EXPECT_EQ(book_->next_time(), 2_s);
  EXPECT_TRUE(book_->on_time(1999_ms).empty());
  const auto strikes = book_->on_time(2_s);
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].whom, "node 0");
  EXPECT_EQ(strikes[0].acts.at(0).pid, -agent(0).group);
  EXPECT_EQ(book_->next_time(), base::kNoDeadline);
  EXPECT_TRUE(book_->on_time(3_s).empty());
}

TEST_F(FaultBookTest, ATimeWithoutItsTargetIsTold) {
  open("at=time:2s target=worker:9 do=kill");
  const auto strikes = book_->on_time(2_s);
  ASSERT_EQ(strikes.size(), 1u);
  EXPECT_EQ(strikes[0].whom, "worker 9 (not there)");
  EXPECT_TRUE(strikes[0].acts.empty());
}

TEST_F(FaultBookTest, KnowsWhetherSomethingMayStillComeBack) {
  open("at=time:2s target=node:0 do=start");
  EXPECT_TRUE(book_->has_unused_start());
  EXPECT_EQ(book_->on_time(2_s).size(), 1u);
  EXPECT_FALSE(book_->has_unused_start());
  open("at=step:3 target=node:0 do=start");
  EXPECT_FALSE(book_->has_unused_start()) << "nobody would reach the step";
}

}  // namespace
}  // namespace perdure::runtime::faults
