// All holders of a layer are gone: older state is brought back, and how far the job goes back.

#include "recovery/restore_choice.h"
#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using base::StatusCode;
using base::operator""_ms;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Ids = std::set<uint32_t>;

class EpochRestoreTest : public MachineTest {
 protected:
  // Two steps, and snapshots of both steps in the memory of each node.
  void train() {
    start_job();
    commit(1);
    keep(1);
    commit(2);
    keep(2);
    clear();
  }
  // What each member holds is kept on its node, which outlives its process.
  void keep(uint64_t step, StateTier tier = StateTier::kMemory) {
    for (const uint32_t w : plan_workers()) {
      kept_[w].push_back(
          {.tier = tier, .committed = committed_at(step), .tensors = bodies_.at(w).state.tensors});
    }
  }
  void forget(uint32_t worker, uint64_t step) {
    std::erase_if(kept_[worker],
                  [step](const StateOffer& o) { return o.committed.step.value() == step; });
  }
  void killed_and_started(const Ids& workers) {
    for (const uint32_t w : workers) down(w);
    for (const uint32_t w : workers) up(w);
    offer();
  }
  void offer() {
    for (auto& [worker, body] : bodies_) body.state.offers = kept_[worker];
  }
  std::vector<base::TensorId> all_tensors() const {
    std::vector<base::TensorId> result;
    for (uint32_t t = 0; t < options_.model.tensors.size(); ++t)
      result.push_back(base::TensorId(t));
    return result;
  }
  Ids last_stage() const {
    Ids result;
    for (const parallel::PipelinePlace& p : machine_->plan()->layout.pipelines)
      result.insert(machine_->plan()->members[p.stages.back().rank.value()].worker.value());
    return result;
  }

  std::map<uint32_t, std::vector<StateOffer>> kept_;
};

TEST_F(EpochRestoreTest, AStageWithoutHoldersComesBackFromMemoryAndNoStepIsLost) {
  train();
  killed_and_started(last_stage());
  run_to(Phase::kRestoring);
  EXPECT_EQ(field("epoch.restore", "step"), "2");
  EXPECT_EQ(field("epoch.restore", "steps_lost"), "0");
  EXPECT_EQ(ordered<OrderRestore>(), Ids({0, 1, 2, 3}));
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
  EXPECT_EQ(machine_->plan()->source, StateSource::kSurvivors);
  EXPECT_EQ(machine_->recoveries(), 1u);
}

// Each tensor is read once, by somebody who offers it; what is live is not read at all.
TEST_F(EpochRestoreTest, OnlyWhatIsMissingIsReadAndOnce) {
  train();
  const Ids dead = last_stage();
  killed_and_started(dead);
  run_to(Phase::kRestoring);
  std::map<uint32_t, std::set<uint32_t>> readers;  // by tensor
  for (const MachineAction& action : actions_) {
    const auto* send = std::get_if<Send>(&action);
    if (send == nullptr || !std::holds_alternative<OrderRestore>(send->order)) continue;
    for (const TensorDigest& d : std::get<OrderRestore>(send->order).tensors) {
      EXPECT_EQ(d.digest, digest_at(d.tensor, 2));
      for (const PlanMember& m : send->to) readers[d.tensor.value()].insert(m.worker.value());
    }
  }
  EXPECT_FALSE(readers.empty());
  EXPECT_LT(readers.size(), options_.model.tensors.size());
  Ids all_readers;
  for (const auto& [tensor, who] : readers) {
    EXPECT_EQ(who.size(), 1u) << "tensor " << tensor;
    all_readers.insert(who.begin(), who.end());
  }
  EXPECT_EQ(all_readers, dead) << "the load is shared";
}

TEST_F(EpochRestoreTest, SnapshotsOneStepBackTakeAllBackOneStep) {
  train();
  const Ids dead = last_stage();
  for (const uint32_t w : dead) forget(w, 2);  // killed before they were taken
  killed_and_started(dead);
  run_to(Phase::kRestoring);
  EXPECT_EQ(field("epoch.restore", "step"), "1");
  EXPECT_EQ(field("epoch.restore", "steps_lost"), "1");
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(1));
  EXPECT_EQ(machine_->committed(), base::Step(1));
  // What the epoch before had reported is not there any more, though it is heard again.
  const uint32_t somebody = *plan_workers().begin();
  feed(StepSeen{speaker(somebody), base::Step(2), base::Epoch(1)});
  EXPECT_EQ(machine_->committed(), base::Step(1));
  commit(2);
  EXPECT_EQ(machine_->committed(), base::Step(2));
}

// A source that proves bad is not offered again; the next one is taken.
TEST_F(EpochRestoreTest, ABadSourceIsReplacedByTheNext) {
  train();
  const Ids dead = last_stage();
  killed_and_started(dead);
  const uint32_t bad = *dead.begin();
  bodies_.at(bad).bad = bodies_.at(bad).state.offers.back().tensors;
  run_to(Phase::kRestoring);
  clear();
  answer_all();
  ASSERT_EQ(phase(), Phase::kRestoring);
  EXPECT_EQ(field("epoch.restore", "step"), "2");
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(EpochRestoreTest, WhenAllSourcesOfAStepAreBadAnOlderOneIsTaken) {
  train();
  const Ids dead = last_stage();
  killed_and_started(dead);
  for (const uint32_t w : dead) bodies_.at(w).bad = bodies_.at(w).state.offers.back().tensors;
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(1));
}

TEST_F(EpochRestoreTest, AReaderThatNeverGetsBetterEndsTheJob) {
  train();
  killed_and_started(last_stage());
  for (auto& [worker, body] : bodies_) body.bad = digests_at(all_tensors(), 2);
  for (int i = 0; i < 40 && !outcome().has_value(); ++i) {
    offer();  // the bad one again
    answer_all();
  }
  ASSERT_TRUE(outcome().has_value());
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("16 attempts")));
}

// More than one step would be lost: first those who are out of reach get their time.
TEST_F(EpochRestoreTest, MuchIsGivenUpOnlyAfterWaiting) {
  train();
  commit(3);
  commit(4);
  killed_and_started(last_stage());
  run_to(Phase::kWaiting);
  EXPECT_THAT(field("epoch.wait", "offers"),
              AllOf(HasSubstr("step 4: "), HasSubstr("step 2 is whole")));
  pass(options_.wait_for_state - 1_ms);
  EXPECT_EQ(phase(), Phase::kWaiting);
  pass(1_ms);
  EXPECT_EQ(phase(), Phase::kRestoring);
  EXPECT_EQ(field("epoch.restore", "steps_lost"), "2");
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

TEST_F(EpochRestoreTest, AReaderThatIsLostOrSilentBeginsAnotherChange) {
  train();
  const Ids dead = last_stage();
  killed_and_started(dead);
  run_to(Phase::kRestoring);
  const uint64_t before = epoch();
  down(*dead.begin());
  EXPECT_EQ(phase(), Phase::kCollecting);
  EXPECT_EQ(epoch(), before + 1);
  run_to(Phase::kRestoring);
  clear();
  pass(options_.load_timeout);
  EXPECT_THAT(ended(), Not(IsEmpty()));
  EXPECT_THAT(why_ended(*ended().begin()), HasSubstr("restoring"));
}

// All processes are gone at once, and come back.
TEST_F(EpochRestoreTest, AllComeBackFromTheMemoryOfTheirNodes) {
  train();
  killed_and_started({0, 1, 2, 3});
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(2));
}

class ResumeTest : public EpochRestoreTest {
 protected:
  // What an earlier run has left at these steps, in a directory that each node sees.
  void earlier_run(const std::vector<uint64_t>& steps) {
    for (const uint64_t step : steps) {
      kept_[0].push_back({.tier = StateTier::kDurable,
                          .committed = committed_at(step),
                          .tensors = digests_at(all_tensors(), step)});
    }
  }
  void start() {
    begin();
    for (uint32_t w = 0; w < 4; ++w) up(w);
    offer();
  }
};

TEST_F(ResumeTest, GoesOnFromTheNewest) {
  options_.resume.emplace();
  earlier_run({10, 20});
  start();
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(20));
  commit(21);
}

TEST_F(ResumeTest, GoesOnFromTheStepThatWasAskedFor) {
  options_.resume = MachineOptions::Resume{.step = base::Step(10)};
  earlier_run({10, 20});
  start();
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(10));
}

TEST_F(ResumeTest, WithoutAskingNothingIsResumed) {
  earlier_run({10, 20});
  start();
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->source, StateSource::kSeed);
}

TEST_F(ResumeTest, NothingToGoOnFromEndsTheJob) {
  options_.resume.emplace();
  start();
  run_to(Phase::kWaiting);
  pass(options_.wait_for_state);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kNotFound, HasSubstr("offers any older state")));
}

TEST_F(ResumeTest, AStepThatIsNotThereEndsTheJobAndTellsThoseThatAre) {
  options_.resume = MachineOptions::Resume{.step = base::Step(15)};
  earlier_run({10, 20});
  start();
  run_to(Phase::kWaiting);
  pass(options_.wait_for_state);
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kNotFound,
                                   AllOf(HasSubstr("step 15"), HasSubstr("step 20 is whole"),
                                         HasSubstr("step 10 is whole"))));
}

// Another step is not what was asked for.
TEST_F(ResumeTest, AStepThatProvesBadIsNotReplacedByAnother) {
  options_.resume = MachineOptions::Resume{.step = base::Step(20)};
  earlier_run({10, 20});
  start();
  for (auto& [worker, body] : bodies_) body.bad = digests_at(all_tensors(), 20);
  run_to(Phase::kWaiting);
  pass(options_.wait_for_state);
  ASSERT_TRUE(outcome().has_value());
  EXPECT_THAT(*outcome(), StatusIs(StatusCode::kNotFound, HasSubstr("step 20")));
}

// After the first epoch the job's own state counts.
TEST_F(ResumeTest, ResumesOnce) {
  options_.resume.emplace();
  earlier_run({10});
  start();
  run_to(Phase::kActive);
  commit(11);
  down(3);
  run_to(Phase::kActive);
  EXPECT_EQ(machine_->plan()->resume, committed_at(11));
}

}  // namespace
}  // namespace perdure::recovery
