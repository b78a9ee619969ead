// Members are lost, late or wrong, in each phase.

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::StatusIs;
using Ids = std::set<uint32_t>;

class EpochLossTest : public MachineTest {
 protected:
  // Active since step 2, with worker 9 as a stand-by.
  void train() {
    start_job();
    up(9);
    commit(1);
    commit(2);
    clear();
  }
  // Epoch 2 or later, in this phase, all of whose members were there at step 2.
  void reach(Phase wanted) {
    train();
    if (wanted == Phase::kActive) return;
    if (wanted == Phase::kHolding) {
      down(9);
      down(3);
      run_to(Phase::kActive);
      up(9);
      pass(options_.grow_delay);
    } else {
      down(3);
      run_to(wanted);
    }
    ASSERT_EQ(phase(), wanted);
    clear();
  }
  uint32_t some_member() const { return *plan_workers().begin(); }
  // Both workers of the last stage.
  Ids last_stage() const {
    Ids result;
    for (const uint32_t w : plan_workers()) {
      if (machine_->plan()->layout.place(rank(w)).stage == base::StageId(1)) result.insert(w);
    }
    return result;
  }
};

TEST_F(EpochLossTest, AfterADecisionALossTakesAHigherEpoch) {
  for (const Phase at : {Phase::kPreparing, Phase::kLoading, Phase::kActive, Phase::kHolding}) {
    SCOPED_TRACE(to_string(at));
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    ASSERT_NO_FATAL_FAILURE(reach(at));
    const uint64_t before = epoch();
    const uint32_t lost = some_member();
    down(lost);
    EXPECT_EQ(phase(), Phase::kCollecting);
    EXPECT_EQ(epoch(), before + 1);
    EXPECT_FALSE(machine_->plan().has_value());
    Ids rest;
    for (const auto& [worker, body] : bodies_) rest.insert(worker);
    EXPECT_EQ(ordered<OrderFence>(), rest);
    EXPECT_EQ(field("member.down", "phase"), to_string(at));
    run_to(Phase::kActive);
    EXPECT_FALSE(in_plan(lost));
    EXPECT_EQ(machine_->plan()->resume, committed_at(2));
    EXPECT_EQ(machine_->plan()->source, StateSource::kSurvivors);
  }
}

TEST_F(EpochLossTest, DuringCollectionItIsCountedOutAndTheEpochStays) {
  train();
  down(3);
  ASSERT_EQ(phase(), Phase::kCollecting);
  const uint64_t before = epoch();
  answer_all({2});
  down(2);
  EXPECT_EQ(epoch(), before);
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_FALSE(in_plan(2));
}

TEST_F(EpochLossTest, ALossBetweenTwoAnswersOfACollectionIsNoAnswer) {
  train();
  down(3);
  answer(0);
  down(0);
  EXPECT_EQ(phase(), Phase::kCollecting);
  answer_all();
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_FALSE(in_plan(0));
}

TEST_F(EpochLossTest, ALostStandByDisturbsNobody) {
  for (const Phase at : {Phase::kPreparing, Phase::kLoading, Phase::kActive}) {
    SCOPED_TRACE(to_string(at));
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    ASSERT_NO_FATAL_FAILURE(reach(at));
    up(20);
    clear();
    const uint64_t before = epoch();
    down(20);
    EXPECT_EQ(phase(), at);
    EXPECT_EQ(epoch(), before);
    EXPECT_THAT(ordered<OrderFence>(), IsEmpty());
  }
}

TEST_F(EpochLossTest, AStandByTakesTheLostRole) {
  train();
  down(2);
  run_to(Phase::kActive);
  EXPECT_TRUE(in_plan(9));
  EXPECT_EQ(plan_workers(), Ids({0, 1, 3, 9}));
  EXPECT_THAT(machine_->plan()->moves, Not(IsEmpty()));
  for (const parallel::TensorMove& move : machine_->plan()->moves) EXPECT_EQ(move.to, rank(9));
  EXPECT_EQ(machine_->recoveries(), 1u);
  EXPECT_EQ(field("epoch.decided", "option"), "same");
}

TEST_F(EpochLossTest, MoreAndMoreAreLostUntilOneIsLeft) {
  start_job();
  uint64_t step = 0;
  for (const uint32_t lost : {3u, 1u, 0u}) {
    for (int i = 0; i < 3; ++i) commit(++step);
    down(lost);
    if (phase() != Phase::kActive) run_to(Phase::kActive);
    EXPECT_EQ(machine_->plan()->resume, committed_at(step));
  }
  // Whatever the order, each loss left a holder of each tensor, because one pipeline was whole.
  EXPECT_EQ(plan_workers(), Ids({2}));
}

TEST_F(EpochLossTest, AReplacedProcessIsALoss) {
  train();
  const uint64_t before = epoch();
  up(1);  // a new process, before anybody told that the old one is gone
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), before + 1);
  EXPECT_EQ(field("member.down", "how"), "replaced by a new process");
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

// -- those who do not answer

TEST_F(EpochLossTest, WhoDoesNotTellItsStateIsEndedAndTheEpochStays) {
  train();
  down(3);
  const uint64_t before = epoch();
  answer_all({2});
  pass(options_.phase_timeout);
  EXPECT_EQ(ended(), Ids({2}));
  EXPECT_EQ(why_ended(2), "no answer while collecting");
  EXPECT_EQ(epoch(), before);
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_FALSE(in_plan(2));
}

TEST_F(EpochLossTest, WhoDoesNotPrepareOrLoadIsEndedAndAHigherEpochBegins) {
  for (const Phase at : {Phase::kPreparing, Phase::kLoading}) {
    SCOPED_TRACE(to_string(at));
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    ASSERT_NO_FATAL_FAILURE(reach(at));
    const uint64_t before = epoch();
    const uint32_t late = some_member();
    answer_all({late});
    pass(options_.load_timeout - 1_ms);
    EXPECT_THAT(ended(), IsEmpty());
    pass(1_ms);
    EXPECT_EQ(ended(), Ids({late}));
    EXPECT_EQ(epoch(), before + 1);
    run_to(Phase::kActive);
    EXPECT_FALSE(in_plan(late));
  }
}

// -- the gate

TEST_F(EpochLossTest, TheGateEndsWhoseStateIsAnotherAndNamesTheTensor) {
  ASSERT_NO_FATAL_FAILURE(reach(Phase::kLoading));
  const uint64_t before = epoch();
  const uint32_t bad = some_member();
  StateReport& state = bodies_.at(bad).state;
  state.tensors[0].digest ^= 1;
  const std::string name = options_.model.tensor(state.tensors[0].tensor).name;
  answer_all();
  EXPECT_EQ(ended(), Ids({bad}));
  EXPECT_THAT(why_ended(bad), HasSubstr(name));
  EXPECT_THAT(field("epoch.refused", "why"), HasSubstr(name));
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), before + 1);
  EXPECT_THAT(ordered<OrderGo>(), IsEmpty());
  EXPECT_FALSE(activated_.contains(base::Epoch(before)));
  run_to(Phase::kActive);
  EXPECT_FALSE(in_plan(bad));
}

TEST_F(EpochLossTest, HoldersThatDifferFromTheSeedEndTheJob) {
  start_four();
  run_to(Phase::kLoading);
  bodies_.at(2).state.tensors[0].digest ^= 1;
  answer_all();
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("differ")));
  EXPECT_THAT(ended(), IsEmpty());
}

TEST_F(EpochLossTest, ReplicasThatDifferAtTheCollectionEndTheJob) {
  train();
  const Ids pair = last_stage();
  const uint32_t one = *pair.begin();
  const uint32_t other = *pair.rbegin();
  bodies_.at(other).state.tensors.back().digest ^= 1;
  const base::TensorId tensor = bodies_.at(other).state.tensors.back().tensor;
  uint32_t third = 0;
  while (pair.contains(third)) ++third;
  down(third);
  answer_all();
  EXPECT_THAT(*outcome(),
              StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr(options_.model.tensor(tensor).name),
                                                    HasSubstr("worker " + std::to_string(one)),
                                                    HasSubstr("worker " + std::to_string(other)))));
}

// -- engines that stop by themselves

TEST_F(EpochLossTest, AnEngineThatLostAPeerBeginsAHigherEpoch) {
  for (const base::Status& why :
       {base::unavailable("rank 2 is gone"), base::deadline_exceeded("no answer"),
        base::aborted("the agent is silent"), base::cancelled("fenced")}) {
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    train();
    feed(Stopped{speaker(1), why});
    EXPECT_EQ(phase(), Phase::kCollecting);
    EXPECT_EQ(epoch(), 2u);
    EXPECT_THAT(field("epoch.begin", "why"), HasSubstr("worker 1 left its step"));
    run_to(Phase::kActive);
    EXPECT_EQ(plan_workers(), Ids({0, 1, 2, 3}));  // nobody is lost
  }
}

TEST_F(EpochLossTest, AnEngineThatCannotGoOnEndsTheJob) {
  train();
  feed(Stopped{speaker(1), base::invalid_argument("no such data")});
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kInvalidArgument, "worker 1: no such data"));
}

TEST_F(EpochLossTest, StoppedInThePhasesBeforeGo) {
  for (const Phase at : {Phase::kPreparing, Phase::kLoading}) {
    SCOPED_TRACE(to_string(at));
    outcome_.reset();
    decided_.clear();
    activated_.clear();
    bodies_.clear();
    ASSERT_NO_FATAL_FAILURE(reach(at));
    const uint64_t before = epoch();
    feed(Stopped{speaker(some_member()), base::unavailable("no connection")});
    EXPECT_EQ(epoch(), before + 1);
    EXPECT_EQ(phase(), Phase::kCollecting);
    // Another one that stopped for the same reason, in the collection: it will tell its state.
    const uint32_t other = ordered<OrderFence>().contains(0) ? 0 : 1;
    feed(Stopped{speaker(other), base::unavailable("no connection")});
    EXPECT_EQ(epoch(), before + 1);
  }
}

TEST_F(EpochLossTest, AMemberThatLeftTheEpochBeginsAHigherOne) {
  train();
  feed(StateTold{speaker(2), bodies_.at(2).state});  // its agent had fenced it
  EXPECT_EQ(epoch(), 2u);
  EXPECT_EQ(field("epoch.begin", "why"), "worker 2 has left the epoch");
  run_to(Phase::kActive);
  commit(3);
  bodies_.at(1).does = MemberDoes::kNothing;  // its node connects anew, and it trains no more
  up_again(1);
  EXPECT_EQ(epoch(), 3u);
  run_to(Phase::kActive);
  up_again(1);  // still running: nothing to do
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_EQ(epoch(), 3u);
}

// -- loop breakers

TEST_F(EpochLossTest, RecoveriesWithoutACommittedStepEndTheJob) {
  options_.recoveries_max = 3;
  train();
  for (int i = 0; i < 3; ++i) {
    feed(Stopped{speaker(1), base::unavailable("again")});
    run_to(Phase::kActive);
  }
  EXPECT_EQ(machine_->recoveries(), 3u);
  feed(Stopped{speaker(1), base::unavailable("and again")});
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kInternal,
                                   AllOf(HasSubstr("3 recoveries without a committed step"),
                                         HasSubstr("and again"))));
}

TEST_F(EpochLossTest, ACommittedStepEndsTheCount) {
  options_.recoveries_max = 3;
  train();
  uint64_t step = 2;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 3; ++i) {
      feed(Stopped{speaker(1), base::unavailable("again")});
      run_to(Phase::kActive);
    }
    commit(++step);
  }
  EXPECT_FALSE(outcome().has_value());
}

TEST_F(EpochLossTest, AStepThatWasCommittedBeforeIsNoProgress) {
  options_.recoveries_max = 2;
  train();
  for (int i = 0; i < 2; ++i) {
    feed(Stopped{speaker(1), base::unavailable("again")});
    run_to(Phase::kActive);
    feed(StepSeen{speaker(0), base::Step(2), base::Epoch(1)});  // told again
  }
  feed(Stopped{speaker(1), base::unavailable("again")});
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kInternal));
}

TEST_F(EpochLossTest, EpochsThatNeverBecomeActiveEndTheJob) {
  start_four();
  for (int i = 0; i < 200 && !outcome().has_value(); ++i) {
    run_to(Phase::kLoading);
    feed(Stopped{speaker(1), base::unavailable("no way")});
  }
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kInternal,
                                   AllOf(HasSubstr("100 attempts"), HasSubstr("no way"))));
}

TEST_F(EpochLossTest, WhoCannotPrepareIsEndedAndTheOthersGoOn) {
  start_four();
  for (int i = 0; i < 3; ++i) {
    run_to(Phase::kPreparing);
    feed(Stopped{speaker(1), base::unavailable("no device")});
  }
  EXPECT_EQ(ended(), Ids({1}));
  run_to(Phase::kActive);
  EXPECT_FALSE(outcome().has_value());
  EXPECT_EQ(machine_->plan()->members.size(), 3u);
}

// -- state that is gone

TEST_F(EpochLossTest, LayersWithoutAHolderEndTheJobAfterAWhile) {
  train();
  down(9);
  for (const uint32_t w : last_stage()) down(w);
  run_to(Phase::kWaiting);
  EXPECT_FALSE(outcome().has_value());
  pass(options_.wait_for_state - 1_ms);
  EXPECT_FALSE(outcome().has_value());
  pass(1_ms);
  const std::string last_layer = options_.model.layers.back().name;
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr(last_layer)));
  EXPECT_THAT(outcome()->message(), Not(HasSubstr(options_.model.layers[1].name)));
}

TEST_F(EpochLossTest, WhoComesBackWithTheStateSavesTheJob) {
  train();
  down(9);
  const Ids pair = last_stage();
  for (const uint32_t w : pair) lost_sight(w);
  answer_all(pair);
  answer_all(pair);
  ASSERT_EQ(phase(), Phase::kWaiting);
  pass(options_.wait_for_return - 1_ms);
  EXPECT_FALSE(outcome().has_value());
  up_again(*pair.begin());
  EXPECT_EQ(phase(), Phase::kCollecting);
  answer_all({*pair.rbegin()});
  run_to(Phase::kActive);
  EXPECT_FALSE(outcome().has_value());
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
  EXPECT_TRUE(in_plan(*pair.begin()));
}

TEST_F(EpochLossTest, AFreshProcessDoesNotBringTheStateBack) {
  train();
  down(9);
  const Ids pair = last_stage();
  for (const uint32_t w : pair) down(w);
  answer_all();
  up(*pair.begin());
  run_to(Phase::kWaiting);
  pass(options_.wait_for_state);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDataLoss));
}

// A run that has history never starts from the seed again.
TEST_F(EpochLossTest, WhenAllAreGoneFreshOnesDoNotStartFromScratch) {
  train();
  down(9);
  for (uint32_t w = 0; w < 4; ++w) down(w);
  EXPECT_EQ(phase(), Phase::kWaiting);
  for (uint32_t w = 0; w < 4; ++w) up(w);
  run_to(Phase::kWaiting);
  EXPECT_THAT(ordered<OrderPrepare>(), IsEmpty());
  pass(options_.wait_for_state);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("nobody who is left holds")));
}

TEST_F(EpochLossTest, OlderStateThanWhatWasCommittedIsGoneBackToWhenNobodyComes) {
  train();
  const Ids old = {0, 1, 2, 3};
  const std::map<uint32_t, Body> kept = bodies_;
  commit(3);
  commit(4);
  for (const uint32_t w : old) bodies_.at(w).state = kept.at(w).state;  // as if cut off at step 2
  feed(Stopped{speaker(1), base::unavailable("gone")});
  run_to(Phase::kWaiting);
  EXPECT_THAT(field("epoch.wait", "why"),
              HasSubstr("step 4 was committed, but the survivors hold step 2"));
  pass(options_.wait_for_state - 1_ms);
  EXPECT_EQ(phase(), Phase::kWaiting);
  pass(1_ms);
  EXPECT_EQ(field("epoch.restore", "steps_lost"), "2");
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(EpochLossTest, ManyLossesAtOnceAreOneChange) {
  options_.pipelines = 3;
  begin();
  for (uint32_t w = 0; w < 6; ++w) up(w);
  run_to(Phase::kActive);
  commit(1);
  clear();
  for (const uint32_t w : {2u, 3u, 4u, 5u}) down(w);
  EXPECT_EQ(epoch(), 2u);
  run_to(Phase::kActive);
  EXPECT_EQ(epoch(), 2u);
  EXPECT_EQ(machine_->recoveries(), 1u);
}

}  // namespace
}  // namespace perdure::recovery
