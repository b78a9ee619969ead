// A job without losses: from the first worker to the end. Losses: epoch_loss_test.cc; what a
// restarted coordinator does: epoch_restart_test.cc; votes, growth, speakers that are stale:
// epoch_change_test.cc.

#include "recovery/epoch_machine.h"

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StatusIs;
using Ids = std::set<uint32_t>;

class EpochMachineTest : public MachineTest {};

TEST_F(EpochMachineTest, StartsWhenAllAreThere) {
  begin();
  for (uint32_t w = 0; w < 3; ++w) up(w);
  EXPECT_EQ(phase(), Phase::kGathering);
  EXPECT_THAT(actions_, IsEmpty());
  up(3);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), 1u);
  EXPECT_EQ(ordered<OrderFence>(), Ids({0, 1, 2, 3}));

  answer_all({3});
  EXPECT_EQ(phase(), Phase::kCollecting);
  answer(3);
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(ordered<OrderPrepare>(), Ids({0, 1, 2, 3}));
  EXPECT_EQ(machine_->plan()->source, StateSource::kSeed);
  EXPECT_THAT(machine_->plan()->moves, IsEmpty());

  answer_all({2});
  EXPECT_EQ(phase(), Phase::kPreparing);
  answer(2);
  EXPECT_EQ(phase(), Phase::kLoading);
  EXPECT_EQ(ordered<OrderLoad>(), Ids({0, 1, 2, 3}));

  answer_all({0});
  EXPECT_EQ(phase(), Phase::kLoading);
  EXPECT_THAT(ordered<OrderGo>(), IsEmpty());
  answer(0);
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_EQ(ordered<OrderGo>(), Ids({0, 1, 2, 3}));
  EXPECT_EQ(machine_->next_deadline(), base::kNoDeadline);
  EXPECT_EQ(machine_->recoveries(), 0u);
}

TEST_F(EpochMachineTest, ThePhasesAreNamedInTheirOrder) {
  start_job();
  std::vector<std::string> names;
  for (const MachineAction& action : actions_) {
    if (const auto* enter = std::get_if<EnterPhase>(&action)) names.emplace_back(enter->name);
  }
  EXPECT_THAT(names,
              ElementsAre("fence", "collect", "decide", "prepare", "transfer", "gate", "go"));
  EXPECT_THAT(kinds(), ElementsAre("epoch.begin", "epoch.decided", "epoch.active"));
}

TEST_F(EpochMachineTest, AddressesAreGivenByRank) {
  start_four();
  run_to(Phase::kLoading);
  for (const MachineAction& action : actions_) {
    const auto* send = std::get_if<Send>(&action);
    if (send == nullptr || !std::holds_alternative<OrderLoad>(send->order)) continue;
    const auto& addresses = std::get<OrderLoad>(send->order).addresses;
    ASSERT_EQ(addresses.size(), 4u);
    for (uint32_t w = 0; w < 4; ++w)
      EXPECT_THAT(addresses[rank(w).value()], ElementsAre(std::byte(w)));
  }
}

TEST_F(EpochMachineTest, EndsWhenAllHaveFinished) {
  start_job();
  commit(1);
  for (const uint32_t w : {2u, 0u, 3u}) finish(w);
  EXPECT_FALSE(outcome().has_value());
  finish(1);
  ASSERT_TRUE(outcome().has_value());
  EXPECT_OK(*outcome());
  EXPECT_EQ(phase(), Phase::kOver);
  clear();
  feed(StopAsked{base::cancelled("too late")});
  up(7);
  pass(1000_s);
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(EpochMachineTest, WhoIsMissingAtTheStartIsNamed) {
  begin();
  up(0);
  up(2);
  pass(options_.join_timeout);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("1, 3")));
}

// Who becomes a spare must not depend on whose process came up last.
TEST_F(EpochMachineTest, TheOthersThatAreExpectedHaveALittleTime) {
  options_.workers_expected = 5;
  begin();
  for (const uint32_t w : {4u, 1u, 2u, 3u}) up(w);
  EXPECT_EQ(phase(), Phase::kGathering);
  pass(options_.gather_grace - 1_ms);
  up(0);
  run_to(Phase::kActive);
  EXPECT_EQ(plan_workers(), Ids({0, 1, 2, 3}));
}

TEST_F(EpochMachineTest, WhoDoesNotComeInThatTimeIsDoneWithout) {
  options_.workers_expected = 5;
  begin();
  for (const uint32_t w : {4u, 1u, 2u, 3u}) up(w);
  pass(options_.gather_grace);
  run_to(Phase::kActive);
  EXPECT_EQ(plan_workers(), Ids({1, 2, 3, 4}));
}

TEST_F(EpochMachineTest, LossesInThatTimeMakeItWaitForEnoughAgain) {
  options_.workers_expected = 5;
  begin();
  for (const uint32_t w : {4u, 1u, 2u, 3u}) up(w);
  down(2);
  pass(options_.gather_grace);
  EXPECT_EQ(phase(), Phase::kGathering);
  pass(options_.join_timeout);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("0, 2")));
}

TEST_F(EpochMachineTest, AMemberThatDiesBeforeTheStartIsWaitedForAgain) {
  begin();
  up(0);
  up(1);
  down(0);
  up(2);
  up(3);
  EXPECT_EQ(phase(), Phase::kGathering);
  up(0);
  run_to(Phase::kActive);
  EXPECT_EQ(plan_workers(), Ids({0, 1, 2, 3}));
}

TEST_F(EpochMachineTest, AJobThatHasNotBegunGathersAgainWhenAllAreLost) {
  start_four();
  for (uint32_t w = 0; w < 4; ++w) down(w);
  EXPECT_EQ(phase(), Phase::kGathering);
  EXPECT_EQ(machine_->next_deadline(), now_ + options_.join_timeout);
  for (uint32_t w = 0; w < 4; ++w) up(w);
  run_to(Phase::kActive);
}

TEST_F(EpochMachineTest, AJobThatLosesAllBeforeItsFirstStepGathersThreeTimes) {
  start_job();
  for (uint32_t recovery = 1; recovery <= options_.recoveries_max; ++recovery) {
    for (uint32_t w = 0; w < 4; ++w) down(w);
    EXPECT_EQ(phase(), Phase::kGathering);
    for (uint32_t w = 0; w < 4; ++w) up(w);
    run_to(Phase::kActive);
  }
  down(0);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kInternal, HasSubstr("without a committed step")));
}

TEST_F(EpochMachineTest, AJobOfOneWorkerStarts) {
  options_.pipelines = 1;
  options_.stages = 1;
  begin();
  up(0);
  run_to(Phase::kActive);
  commit(1);
  finish(0);
  EXPECT_OK(*outcome());
}

TEST_F(EpochMachineTest, SurplusWorkersStandBy) {
  start_four();
  up(4);  // while the others tell their state
  EXPECT_EQ(ordered<OrderFence>(), Ids({0, 1, 2, 3, 4}));
  run_to(Phase::kActive);
  up(5);
  up(6);
  pass(100_s);
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_EQ(epoch(), 1u);
  EXPECT_EQ(plan_workers().size(), 4u);
  EXPECT_EQ(field("epoch.decided", "stand_by"), "1");
}

TEST_F(EpochMachineTest, AskedToStopItStopsInEveryPhase) {
  for (const Phase wanted :
       {Phase::kCollecting, Phase::kPreparing, Phase::kLoading, Phase::kActive}) {
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    start_four();
    run_to(wanted);
    feed(StopAsked{base::cancelled("Ctrl-C")});
    EXPECT_THAT(*outcome(), StatusIs(StatusCode::kCancelled, "Ctrl-C"));
    EXPECT_EQ(machine_->next_deadline(), base::kNoDeadline);
  }
}

TEST_F(EpochMachineTest, TheSameEventsGiveTheSameActions) {
  const auto life = [this] {
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    next_incarnation_ = 1;
    now_ = 100_s;
    clear();
    start_job();
    commit(1);
    down(2);
    run_to(Phase::kActive);
    std::string text;
    for (const MachineAction& action : actions_) {
      text += std::to_string(action.index()) + " ";
      if (const auto* explain = std::get_if<Explain>(&action)) {
        for (const auto& [key, value] : explain->event.fields())
          text += key + (std::holds_alternative<std::string>(value) ? std::get<std::string>(value)
                                                                    : std::string());
      }
    }
    return text;
  };
  const std::string first = life();
  EXPECT_EQ(first, life());
}

TEST_F(EpochMachineTest, EveryPhaseHasAName) {
  std::set<std::string> names;
  for (int p = 0; p <= static_cast<int>(Phase::kOver); ++p)
    names.emplace(to_string(static_cast<Phase>(p)));
  EXPECT_EQ(names.size(), static_cast<size_t>(Phase::kOver) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace perdure::recovery
