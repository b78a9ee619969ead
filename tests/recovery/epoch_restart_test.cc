// A coordinator that is started again: what it remembers, what the workers say.

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StatusIs;
using Ids = std::set<uint32_t>;

class EpochRestartTest : public MachineTest {
 protected:
  enum class Journal { kDecided, kActive };
  // A new machine, with what the journal of the old one held.
  void restart(Journal journal) {
    MachineMemory memory{.decided = machine_->plan(),
                         .active = journal == Journal::kActive,
                         .committed = machine_->committed()};
    clear();
    begin(memory);
  }
};

TEST_F(EpochRestartTest, AnActiveEpochThatIsWholeGoesOn) {
  start_job();
  commit(1);
  restart(Journal::kActive);
  EXPECT_EQ(phase(), Phase::kRejoining);
  EXPECT_EQ(epoch(), 1u);
  for (uint32_t w = 0; w < 4; ++w) {
    EXPECT_EQ(phase(), Phase::kRejoining);
    up_again(w);
  }
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_EQ(epoch(), 1u);
  EXPECT_THAT(ordered<OrderFence>(), IsEmpty());
  EXPECT_THAT(ordered<OrderGo>(), IsEmpty());
  EXPECT_EQ(ordered<OrderTellAgain>(), Ids({0, 1, 2, 3}));
  EXPECT_EQ(machine_->recoveries(), 0u);
  commit(2);
  down(1);
  run_to(Phase::kActive);
  EXPECT_EQ(epoch(), 2u);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(EpochRestartTest, MembersThatWereNeverToldToGoAre) {
  start_job();
  bodies_.at(1).does = MemberDoes::kLoaded;
  bodies_.at(3).does = MemberDoes::kLoaded;
  restart(Journal::kActive);
  for (uint32_t w = 0; w < 4; ++w) up_again(w);
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_EQ(ordered<OrderGo>(), Ids({1, 3}));
  EXPECT_EQ(ordered<OrderTellAgain>(), Ids({0, 1, 2, 3}));
}

TEST_F(EpochRestartTest, ADecisionThatWasNotPutIntoActionIsMadeAnew) {
  start_four();
  run_to(Phase::kLoading);
  restart(Journal::kDecided);
  for (uint32_t w = 0; w < 4; ++w) up_again(w);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), 2u);
  EXPECT_EQ(ordered<OrderFence>(), Ids({0, 1, 2, 3}));
  run_to(Phase::kActive);
}

TEST_F(EpochRestartTest, AMemberThatDoesNotComeBackIsALoss) {
  start_job();
  commit(1);
  restart(Journal::kActive);
  for (uint32_t w = 0; w < 3; ++w) up_again(w);
  pass(options_.rejoin_timeout - 1_ms);
  EXPECT_EQ(phase(), Phase::kRejoining);
  pass(1_ms);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), 2u);
  bodies_.erase(3);
  run_to(Phase::kActive);
  EXPECT_FALSE(in_plan(3));
  EXPECT_EQ(machine_->plan()->resume, committed_at(1));
}

TEST_F(EpochRestartTest, ANewProcessInTheOldPlaceIsALoss) {
  start_job();
  commit(1);
  restart(Journal::kActive);
  for (uint32_t w = 0; w < 3; ++w) up_again(w);
  up(3);
  EXPECT_EQ(phase(), Phase::kCollecting);
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(1));
}

TEST_F(EpochRestartTest, AMemberThatHasLeftTheEpochMeanwhileIsALoss) {
  start_job();
  bodies_.at(2).does = MemberDoes::kNothing;
  restart(Journal::kActive);
  for (uint32_t w = 0; w < 4; ++w) up_again(w);
  EXPECT_EQ(phase(), Phase::kCollecting);
}

TEST_F(EpochRestartTest, AMemberThatHasHeardOfAnotherEpochIsALoss) {
  start_job();
  restart(Journal::kActive);
  bodies_.at(2).epoch = base::Epoch(5);  // of a decision whose record was lost
  for (uint32_t w = 0; w < 4; ++w) up_again(w);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), 6u);
}

TEST_F(EpochRestartTest, DeathsThatAreToldBeforeAllHaveRejoined) {
  start_job();
  commit(1);
  const PlanMember gone = bodies_.at(3).id;
  bodies_.erase(3);
  restart(Journal::kActive);
  up_again(0);
  feed(MemberDown{gone.worker, base::Incarnation(77), "another process"});
  up_again(1);
  feed(MemberDown{gone.worker, gone.incarnation, "ended while nobody listened"});
  EXPECT_EQ(phase(), Phase::kRejoining);
  up_again(2);
  EXPECT_EQ(phase(), Phase::kCollecting);
  run_to(Phase::kActive);
  EXPECT_FALSE(in_plan(3));
}

TEST_F(EpochRestartTest, AMemberThatRejoinsAndDiesIsALoss) {
  start_job();
  commit(1);
  restart(Journal::kActive);
  up_again(0);
  up_again(1);
  up_again(2);
  down(2);
  EXPECT_EQ(phase(), Phase::kRejoining);
  up_again(3);
  EXPECT_EQ(phase(), Phase::kCollecting);
  run_to(Phase::kActive);
}

TEST_F(EpochRestartTest, NobodyComesBack) {
  start_job();
  commit(1);
  restart(Journal::kActive);
  pass(options_.rejoin_timeout);
  EXPECT_EQ(phase(), Phase::kWaiting);
  pass(options_.wait_for_return - 1_ms);
  EXPECT_FALSE(outcome().has_value());  // they may be out of reach only
  pass(1_ms);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDataLoss));
}

// The journal says that steps were done: fresh processes are not started from the seed.
TEST_F(EpochRestartTest, FreshProcessesDoNotStartFromScratch) {
  start_job();
  commit(1);
  commit(2);
  restart(Journal::kActive);
  for (uint32_t w = 0; w < 4; ++w) up(w);
  run_to(Phase::kWaiting);
  EXPECT_THAT(ordered<OrderPrepare>(), IsEmpty());
}

TEST_F(EpochRestartTest, AJobThatFinishedMeanwhileEnds) {
  start_job();
  commit(1);
  for (uint32_t w = 0; w < 4; ++w) bodies_.at(w).does = MemberDoes::kFinished;
  restart(Journal::kActive);
  for (uint32_t w = 0; w < 4; ++w) up_again(w);
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_EQ(ordered<OrderTellAgain>(), Ids({0, 1, 2, 3}));  // finished is told again
  for (uint32_t w = 0; w < 4; ++w) finish(w);
  EXPECT_OK(*outcome());
}

TEST_F(EpochRestartTest, StandBysAreTakenInAfterTheRestart) {
  start_job();
  commit(1);
  down(3);
  run_to(Phase::kActive);
  const Ids members = plan_workers();
  restart(Journal::kActive);
  up(3);
  for (const uint32_t w : members) up_again(w);
  EXPECT_EQ(phase(), Phase::kActive);
  pass(options_.grow_delay);
  EXPECT_EQ(phase(), Phase::kHolding);
}

TEST_F(EpochRestartTest, BeforeTheFirstDecisionThereIsNothingToRejoin) {
  begin(MachineMemory{.committed = base::Step(0)});
  EXPECT_EQ(phase(), Phase::kGathering);
  for (uint32_t w = 0; w < 4; ++w) up(w);
  run_to(Phase::kActive);
  EXPECT_EQ(epoch(), 1u);
}

TEST_F(EpochRestartTest, RestartsInEveryPhaseComeToTheSameState) {
  for (const Phase at : {Phase::kPreparing, Phase::kLoading, Phase::kActive}) {
    SCOPED_TRACE(to_string(at));
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    start_job();
    commit(1);
    commit(2);
    down(2);
    run_to(at);
    restart(at == Phase::kActive ? Journal::kActive : Journal::kDecided);
    const auto alive = bodies_;
    for (const auto& [worker, body] : alive) up_again(worker);
    pass(options_.rejoin_timeout);
    run_to(Phase::kActive);
    EXPECT_EQ(machine_->plan()->resume, committed_at(2));
    EXPECT_FALSE(outcome().has_value());
  }
}

}  // namespace
}  // namespace perdure::recovery
