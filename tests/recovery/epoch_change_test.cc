// Votes that some lack, workers that come later, and speakers whose words no longer count.

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StatusIs;
using Ids = std::set<uint32_t>;

// -- rolling forward

class RollForwardTest : public MachineTest {
 protected:
  // Step 3 was voted on; only `heard` know the result when worker 3 dies.
  void lose_in_vote(const Ids& heard) {
    start_job();
    commit(1);
    commit(2);
    Ids not_yet;
    for (uint32_t w = 0; w < 4; ++w) {
      if (!heard.contains(w)) not_yet.insert(w);
    }
    commit(3, not_yet);
    clear();
    down(3);
    answer_all();
  }
};

TEST_F(RollForwardTest, WhoLacksTheVoteIsGivenItAndApplies) {
  lose_in_vote({2});
  ASSERT_EQ(phase(), Phase::kResolving);
  EXPECT_EQ(ordered<OrderVote>(), Ids({2}));
  EXPECT_EQ(field("epoch.roll_forward", "behind"), "2");
  answer(2);
  EXPECT_EQ(ordered<OrderApply>(), Ids({0, 1}));
  EXPECT_EQ(bodies_.at(0).state.committed, committed_at(3));
  answer(0);
  EXPECT_EQ(phase(), Phase::kResolving);
  answer(1);
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(machine_->plan()->resume, committed_at(3));
  run_to(Phase::kActive);
  EXPECT_EQ(epoch(), 2u);
}

TEST_F(RollForwardTest, WhatWasToldBeforeTheVoteIsNoAnswerToIt) {
  lose_in_vote({2});
  const StateReport before = bodies_.at(0).state;
  answer(2);
  feed(StateTold{speaker(0), before});  // its agent had fenced it while the coordinator was away
  answer(1);
  EXPECT_EQ(phase(), Phase::kResolving);
  answer(0);
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(machine_->plan()->resume, committed_at(3));
}

TEST_F(RollForwardTest, WhenNobodyHasTheVoteTheStepRunsAgain) {
  lose_in_vote({});
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(RollForwardTest, WhenOnlyTheDeadHadTheVoteTheStepRunsAgain) {
  lose_in_vote({3});
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
  EXPECT_THAT(ordered<OrderVote>(), IsEmpty());
}

// It was reported before its only holder died: the survivors are one step behind what was seen, and
// running it again gives the same bits.
TEST_F(RollForwardTest, AStepThatWasReportedAndLostRunsAgain) {
  start_job();
  commit(1);
  commit(2);
  const uint32_t first = machine_->plan()->members[0].worker.value();
  Ids others = {0, 1, 2, 3};
  others.erase(first);
  commit(3, others);
  EXPECT_EQ(machine_->committed(), base::Step(3));
  down(first);
  answer_all();
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(RollForwardTest, TheGiverDiesBeforeItGives) {
  lose_in_vote({2});
  down(2);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), 3u);
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(RollForwardTest, OneThatIsBehindDiesBeforeItApplies) {
  lose_in_vote({0, 1});
  ASSERT_EQ(phase(), Phase::kResolving);
  down(2);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), 3u);
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(3));
}

// Its peers hold all that is left of a step; they must not pay for its silence.
TEST_F(RollForwardTest, AGiverThatIsSilentIsEndedNotThoseWhoWait) {
  lose_in_vote({2});
  pass(options_.phase_timeout);
  EXPECT_EQ(ended(), Ids({2}));
  EXPECT_EQ(phase(), Phase::kCollecting);
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(RollForwardTest, WhoDoesNotApplyInTimeIsEnded) {
  lose_in_vote({2});
  answer(2);
  clear();
  pass(options_.phase_timeout);
  EXPECT_EQ(ended(), Ids({0, 1}));
  EXPECT_EQ(why_ended(0), "no answer while resolving");
  EXPECT_EQ(epoch(), 3u);
}

// A wrong vote is given to nobody, and what the others hold is used as it is.
TEST_F(RollForwardTest, AVoteThatNobodyWaitsForHelpsNobody) {
  lose_in_vote({2});
  feed(
      VoteTold{speaker(2), {.step = base::Step(3), .id = {.epoch = base::Epoch(1), .attempt = 9}}});
  EXPECT_THAT(ordered<OrderApply>(), IsEmpty());
  EXPECT_EQ(phase(), Phase::kResolving);
  pass(options_.phase_timeout);
  EXPECT_EQ(ended(), Ids({2}));
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(RollForwardTest, OnlyTheGiversVoteCounts) {
  lose_in_vote({2});
  const VoteValue vote{.step = base::Step(3), .id = {.epoch = base::Epoch(1), .attempt = 1}};
  feed(VoteTold{speaker(0), vote});
  EXPECT_THAT(ordered<OrderApply>(), IsEmpty());
}

TEST_F(RollForwardTest, OneThatCouldNotApplyIsLeftBehind) {
  lose_in_vote({0, 1});
  answer(0);
  ASSERT_EQ(ordered<OrderApply>(), Ids({2}));
  StateReport still = bodies_.at(2).state;
  still.committed = committed_at(2);
  still.pending = {};
  for (TensorDigest& d : still.tensors) d.digest = digest_at(d.tensor, 2);
  bodies_.at(2).state = still;
  feed(StateTold{speaker(2), still});
  EXPECT_EQ(phase(), Phase::kPreparing);
  EXPECT_EQ(machine_->plan()->resume, committed_at(3));
}

// -- growing

class GrowthTest : public MachineTest {
 protected:
  void shrink() {
    start_job();
    commit(1);
    down(3);
    down(2);
    run_to(Phase::kActive);
    commit(2);
    ASSERT_EQ(plan_workers(), Ids({0, 1}));
    clear();
  }
};

TEST_F(GrowthTest, WhoComesLaterIsTakenInAfterAHold) {
  shrink();
  up(2);
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(machine_->next_deadline(), now_ + options_.grow_delay);
  pass(100_ms);
  up(3);  // the delay counts from the last one
  pass(150_ms);
  EXPECT_EQ(phase(), Phase::kActive);
  pass(50_ms);
  EXPECT_EQ(phase(), Phase::kHolding);
  EXPECT_EQ(ordered<OrderHold>(), Ids({0, 1}));
  commit(3);
  EXPECT_EQ(phase(), Phase::kHolding);
  answer(0);
  EXPECT_EQ(phase(), Phase::kCollecting);
  run_to(Phase::kActive);
  EXPECT_EQ(plan_workers(), Ids({0, 1, 2, 3}));
  EXPECT_EQ(machine_->plan()->resume, committed_at(3));
  EXPECT_EQ(machine_->recoveries(), 1u);  // growing is none
}

TEST_F(GrowthTest, AHoldThatIsNotAgreedOnEndsInAChangeAllTheSame) {
  shrink();
  up(2);
  pass(options_.grow_delay);
  ASSERT_EQ(phase(), Phase::kHolding);
  pass(options_.hold_timeout - 1_ms);
  EXPECT_EQ(phase(), Phase::kHolding);
  pass(1_ms);
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_THAT(ended(), IsEmpty());
  run_to(Phase::kActive);
  EXPECT_EQ(plan_workers().size(), 3u);
}

TEST_F(GrowthTest, WhoComesDuringAChangeIsTakenInAfterIt) {
  start_job();
  commit(1);
  down(3);
  run_to(Phase::kLoading);
  up(3);
  run_to(Phase::kActive);
  pass(options_.grow_delay);
  ASSERT_EQ(phase(), Phase::kHolding);
  run_to(Phase::kActive);
  EXPECT_EQ(plan_workers(), Ids({0, 1, 2, 3}));
}

// With two micro-batches two pipelines of one stage are as fast as anything that three workers can
// do.
TEST_F(GrowthTest, WhoWouldMakeNothingFasterStandsByAndIsNotAskedAgain) {
  options_.micro_batches = 2;
  shrink();
  const uint64_t before = epoch();
  up(2);
  for (int i = 0; i < 20; ++i) pass(options_.grow_delay);
  EXPECT_EQ(epoch(), before);
  EXPECT_EQ(phase(), Phase::kActive);
}

TEST_F(GrowthTest, AJobThatMayNotGrowDoesNot) {
  options_.grow = false;
  shrink();
  up(2);
  pass(1000_s);
  EXPECT_EQ(phase(), Phase::kActive);
  EXPECT_THAT(ordered<OrderHold>(), IsEmpty());
}

TEST_F(GrowthTest, JobsThatFinishWhileTheyHoldAreDone) {
  shrink();
  up(2);
  pass(options_.grow_delay);
  commit(3);
  finish(0);
  finish(1);
  EXPECT_OK(*outcome());
}

TEST_F(GrowthTest, ManyGrowthsAreNoFruitlessRecoveries) {
  options_.recoveries_max = 1;
  shrink();
  for (int i = 0; i < 5; ++i) {
    up(3);
    pass(options_.grow_delay);
    run_to(Phase::kActive);
    commit(static_cast<uint64_t>(3 + i));
    down(3);
    run_to(Phase::kActive);
  }
  EXPECT_FALSE(outcome().has_value());
}

// -- stale speakers

class StaleSpeakerTest : public MachineTest {
 protected:
  // Everything that a worker can say, from this speaker.
  static std::vector<MachineEvent> all_said_by(const Speaker& from) {
    return {StateTold{from, {}},
            VoteTold{from, {}},
            Prepared{from, {}},
            Loaded{from, {}},
            Stopped{from, base::unavailable("old news")},
            Stopped{from, base::invalid_argument("old news")},
            MemberFinished{from, base::Step(9)}};
  }
  void expect_ignored(const Speaker& from) {
    for (const MachineEvent& event : all_said_by(from)) {
      const Phase before = phase();
      const uint64_t count = machine_->stale_events();
      clear();
      feed(event);
      EXPECT_THAT(actions_, IsEmpty()) << "event " << event.index() << " in " << to_string(before);
      EXPECT_EQ(phase(), before);
      EXPECT_EQ(machine_->stale_events(), count + 1) << "event " << event.index();
    }
  }
};

TEST_F(StaleSpeakerTest, OldProcessesAndOldEpochsHaveNoEffectInAnyPhase) {
  start_job();
  commit(1);
  const Speaker old_process = speaker(1);
  down(1);
  up(1);
  for (const Phase at : {Phase::kCollecting, Phase::kPreparing, Phase::kLoading, Phase::kActive}) {
    run_to(at);
    Speaker of_this_epoch = old_process;
    of_this_epoch.epoch = machine_->epoch();
    expect_ignored(of_this_epoch);
    Speaker old_epoch = speaker(0);
    old_epoch.epoch = base::Epoch(1);
    expect_ignored(old_epoch);
    Speaker future = speaker(0);
    future.epoch = base::Epoch(99);
    expect_ignored(future);
    expect_ignored({base::WorkerId(77), base::Incarnation(1), machine_->epoch()});
  }
}

TEST_F(StaleSpeakerTest, WordsOfAnotherPhaseHaveNoEffect) {
  start_job();
  clear();
  feed(Prepared{speaker(0), {}});
  feed(Loaded{speaker(0), {}});
  feed(VoteTold{speaker(0), {}});
  EXPECT_THAT(actions_, IsEmpty());
  down(3);
  clear();
  feed(Prepared{speaker(0), {}});
  feed(Loaded{speaker(0), {}});
  feed(MemberFinished{speaker(0), base::Step(9)});
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(phase(), Phase::kCollecting);
}

TEST_F(StaleSpeakerTest, AnAnswerTwiceCountsOnce) {
  start_four();
  for (int i = 0; i < 4; ++i) answer(0);
  EXPECT_EQ(phase(), Phase::kCollecting);
  run_to(Phase::kPreparing);
  for (int i = 0; i < 4; ++i) answer(0);
  EXPECT_EQ(phase(), Phase::kPreparing);
  run_to(Phase::kLoading);
  for (int i = 0; i < 4; ++i) answer(0);
  EXPECT_EQ(phase(), Phase::kLoading);
  run_to(Phase::kActive);
  for (int i = 0; i < 4; ++i) finish(0);
  EXPECT_FALSE(outcome().has_value());
}

TEST_F(StaleSpeakerTest, AnOldProcessThatComesUpLateIsNobody) {
  start_job();
  const PlanMember old = bodies_.at(1).id;
  down(1);
  up(1);
  run_to(Phase::kActive);
  clear();
  feed(MemberUp{old, base::Epoch(50), MemberDoes::kRunning});
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(machine_->stale_events(), 1u);
}

// The death of the old process is heard after its successor has come (a late event).
TEST_F(StaleSpeakerTest, ALateDeathNoticeDoesNotHitTheSuccessor) {
  start_job();
  const PlanMember old = bodies_.at(1).id;
  up(1);
  run_to(Phase::kActive);
  const uint64_t before = epoch();
  clear();
  feed(MemberDown{old.worker, old.incarnation, "killed"});
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(epoch(), before);
}

TEST_F(StaleSpeakerTest, AStandByCannotStopTheJob) {
  start_job();
  up(9);
  bodies_.at(9).epoch = machine_->epoch();
  clear();
  feed(Stopped{speaker(9), base::internal("I am broken")});
  feed(StateTold{speaker(9), {}});
  EXPECT_THAT(actions_, IsEmpty());
  EXPECT_EQ(phase(), Phase::kActive);
}

// A worker that has heard of a higher epoch (of a coordinator whose journal is lost) is not
// commanded with a lower one.
TEST_F(StaleSpeakerTest, TheNextEpochIsAboveAllThatAnybodyHasHeardOf) {
  begin();
  up(0);
  up(1);
  up(2);
  bodies_[3] = {.id = {base::WorkerId(3), base::Incarnation(50), base::NodeId(3)},
                .epoch = base::Epoch(41)};
  up_again(3);
  EXPECT_EQ(epoch(), 42u);
  run_to(Phase::kActive);
}

}  // namespace
}  // namespace perdure::recovery
