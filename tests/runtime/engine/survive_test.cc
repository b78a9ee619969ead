// A step that is left in any phase, on any rank, ends with the bits of a run that nothing
// disturbed.

#include "parallel/sample_mark.h"
#include "runtime/engine/step_phases.h"
#include "tests/runtime/engine/survivors.h"

namespace perdure::runtime::engine {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;

constexpr uint32_t kSteps = 4;
constexpr uint32_t kRanks = 4;

struct Case {
  std::string name;
  parallel::ComputeType compute;
  uint32_t width_bits;
  int64_t block_elements;
};

TrainJob job_of(const Case& c) {
  TrainJob job;
  job.model = tiny_model(parallel::Family::kGpt2);
  job.model.layers = 2;
  job.batch.compute = c.compute;
  job.numerics.width_bits = c.width_bits;
  job.numerics.block_elements = c.block_elements;
  job.steps = kSteps;
  return job;
}

std::map<uint64_t, uint64_t> undisturbed(const TrainJob& job) {
  std::map<uint64_t, uint64_t> result;
  const TrainTrace trace = train(job);
  for (uint64_t step = 0; step < kSteps; ++step) result[step] = trace.digests[step];
  return result;
}

class SurviveTest : public ::testing::TestWithParam<Case> {};
class SurvivePhasesTest : public SurviveTest {};

struct Place {
  uint64_t step;
  uint32_t nth;  // attempt
};
constexpr Place kPlaces[] = {{1, 1}, {1, 2}, {3, 1}};

TEST_P(SurvivePhasesTest, AnAbortInAnyPhaseOfAnyRankLosesNoBit) {
  const TrainJob job = job_of(GetParam());
  const auto expected = undisturbed(job);
  for (const std::string_view phase :
       {kStepBegin, kStepCompute, kStepReduce, kStepVote, kStepVoted, kStepApply, kStepCommit}) {
    for (const Place place : kPlaces) {
      const bool once_per_step = phase == kStepBegin || phase == kStepApply || phase == kStepCommit;
      if (once_per_step && place.nth > 1) continue;
      for (uint32_t rank = 0; rank < kRanks; ++rank) {
        SCOPED_TRACE(std::string(phase) + " of rank " + std::to_string(rank) + ", step " +
                     std::to_string(place.step) + ", attempt " + std::to_string(place.nth));
        Survivors world(job, kRanks);
        Strike strike({.point = phase, .rank = rank, .step = place.step, .nth = place.nth},
                      [&](base::MutableByteSpan) {
                        world.at(rank).fabric->abort(base::aborted("struck"));
                        return base::Status::ok();
                      });
        {
          const base::ScopedFaultHandler armed(strike);
          world.run_epoch(2, 2, kSteps);
        }
        ASSERT_TRUE(strike.has_struck());
        world.settle();
        world.run_epoch(2, 2, kSteps);
        for (uint32_t r = 0; r < kRanks; ++r) ASSERT_OK(world.at(r).status);
        ASSERT_EQ(world.digests(), expected);
      }
    }
  }
}

// Who has the vote is decided by the test: all subsets of the ranks lose its result.
TEST_P(SurviveTest, AVoteThatSomeRankHasCommitsTheStepOnAll) {
  const TrainJob job = job_of(GetParam());
  const auto expected = undisturbed(job);
  for (const uint64_t step : {1, 3}) {
    for (uint32_t losers = 1; losers < 16; ++losers) {
      SCOPED_TRACE("step " + std::to_string(step) + ", losers " + std::to_string(losers));
      class Loser final : public base::FaultHandler {
       public:
        Loser(uint32_t ranks, uint32_t nth) : ranks_(ranks), nth_(nth) {}
        base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
          if (name != kStepVoted || (ranks_ >> current_rank & 1) == 0) return base::Status::ok();
          if (++seen_[current_rank] != nth_) return base::Status::ok();
          return base::unavailable("the result is lost");
        }

       private:
        const uint32_t ranks_;
        const uint32_t nth_;
        std::array<uint32_t, kRanks> seen_{};
      } loser(losers, static_cast<uint32_t>(step) + 1);  // step 1 has two attempts
      Survivors world(job, kRanks);
      {
        const base::ScopedFaultHandler armed(loser);
        world.run_epoch(2, 2, static_cast<uint32_t>(step));
      }
      for (uint32_t r = 0; r < kRanks; ++r) {
        StepEngine& engine = *world.at(r).engine;
        const bool lost = (losers >> r & 1) != 0;
        EXPECT_EQ(engine.step().value(), lost ? step - 1 : step);
        EXPECT_EQ(engine.pending_attempt(), lost ? (step == 1 ? 2u : 1u) : 0u);
        if (!lost) {
          EXPECT_EQ(engine.last_vote().epoch, world.epoch());
        }
      }
      const uint32_t count = static_cast<uint32_t>(std::popcount(losers));
      EXPECT_EQ(world.settle(), losers == 15 ? 0 : count);
      world.run_epoch(2, 2, kSteps);
      ASSERT_EQ(world.digests(), expected);
    }
  }
}

constexpr auto kName = [](const auto& test) { return test.param.name; };
const Case kF32Wide{"f32_64", parallel::ComputeType::kF32, 64, 0};
const Case kBf16Wide{"bf16_64", parallel::ComputeType::kBF16, 64, 0};
const Case kF32Narrow{"f32_32", parallel::ComputeType::kF32, 32, 64};
const Case kBf16Narrow{"bf16_32", parallel::ComputeType::kBF16, 32, 64};
INSTANTIATE_TEST_SUITE_P(Exact, SurvivePhasesTest, ::testing::Values(kF32Wide, kBf16Narrow), kName);
INSTANTIATE_TEST_SUITE_P(Exact, SurviveTest,
                         ::testing::Values(kF32Wide, kBf16Wide, kF32Narrow, kBf16Narrow), kName);

class ApplyVoteTest : public ::testing::Test {
 protected:
  // Rank 1 of 2 has lost the vote of step 2.
  ApplyVoteTest() : world_(job_of(kF32Wide), 2) {
    Strike strike({.point = kStepVoted, .rank = 1, .step = 2},
                  [](base::MutableByteSpan) { return base::unavailable("the result is lost"); });
    const base::ScopedFaultHandler armed(strike);
    world_.run_epoch(2, 1, 2);
    vote_ = world_.at(0).engine->last_vote();
  }
  StepEngine& loser() { return *world_.at(1).engine; }
  base::Status apply(uint32_t attempt, const std::vector<uint64_t>& words) {
    return loser().apply_vote(attempt, words, world_.job().learning_rate).status();
  }

  Survivors world_;
  CommittedVote vote_;
};

TEST_F(ApplyVoteTest, RefusesWhatDoesNotCommitThePendingStepAndStaysPending) {
  const auto refused = StatusIs(StatusCode::kFailedPrecondition);
  ASSERT_EQ(loser().pending_attempt(), 1u);
  const auto before = loser().tensor_digests();
  EXPECT_THAT(apply(2, vote_.words), refused);
  std::vector<uint64_t> words = vote_.words;
  words.pop_back();
  EXPECT_THAT(apply(1, words), refused);
  words = vote_.words;
  ++words[0];
  EXPECT_THAT(apply(1, words), refused);
  words = vote_.words;
  ++words[2];  // micro-batches
  EXPECT_THAT(apply(1, words), refused);
  words = vote_.words;
  const size_t tensors = before.size();
  words[4 + tensors] = 1;  // overflow: another attempt
  EXPECT_THAT(apply(1, words), refused);
  words = vote_.words;
  ++words[8 + tensors];  // the digest of tensor 0
  EXPECT_THAT(apply(1, words), refused);
  EXPECT_EQ(loser().tensor_digests(), before);
  EXPECT_EQ(loser().step(), base::Step(1));

  ASSERT_EQ(loser().pending_attempt(), 1u);
  EXPECT_OK(apply(1, vote_.words));
  EXPECT_EQ(loser().step(), base::Step(2));
  EXPECT_EQ(loser().tensor_digests(), world_.at(0).engine->tensor_digests());
  EXPECT_EQ(loser().last_vote().words, vote_.words);
  EXPECT_THAT(apply(1, vote_.words), refused) << "nothing is pending any more";
}

TEST_F(ApplyVoteTest, ANewAttemptEndsWhatWasPending) {
  const auto source = make_source(world_.job());
  EXPECT_FALSE(loser().run_step(*source, 1e-2f).is_ok()) << "the fabric is aborted";
  EXPECT_EQ(loser().pending_attempt(), 0u);
  EXPECT_THAT(apply(1, vote_.words), StatusIs(StatusCode::kFailedPrecondition));
}

TEST_F(ApplyVoteTest, GivesTheResultOfTheRankThatHadTheVote) {
  const auto result = loser().apply_vote(1, vote_.words, world_.job().learning_rate);
  ASSERT_OK(result);
  const StepResult& other = world_.at(0).results.back();
  EXPECT_EQ(result.value().loss, other.loss);
  EXPECT_EQ(result.value().grad_norm, other.grad_norm);
  EXPECT_EQ(result.value().digest_before, other.digest_before);
  EXPECT_EQ(result.value().sample_sum, other.sample_sum);
}

class Recorder final : public base::FaultHandler {
 public:
  base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
    if (current_rank == 0) {
      seen.push_back(std::string(name));
      steps.push_back(base::fault_time.step.load());
    }
    return base::Status::ok();
  }
  std::vector<std::string> seen;
  std::vector<uint64_t> steps;
};

TEST(StepPhasesTest, AreReachedInOrderAlsoWithOneRank) {
  for (const uint32_t stages : {1u, 2u}) {
    Recorder recorder;
    const base::ScopedFaultHandler armed(recorder);
    Survivors world(job_of(kF32Wide), 2);
    world.run_epoch(1, stages, 2);
    EXPECT_THAT(recorder.seen,
                ::testing::ElementsAre("step.begin", "step.compute", "step.reduce", "step.vote",
                                       "step.voted", "step.compute", "step.reduce", "step.vote",
                                       "step.voted", "step.apply", "step.commit", "step.begin",
                                       "step.compute", "step.reduce", "step.vote", "step.voted",
                                       "step.apply", "step.commit"));
    if (stages > 1) continue;  // two ranks share the logical time
    for (size_t i = 0; i < recorder.steps.size(); ++i) {
      EXPECT_EQ(recorder.steps[i], i < 11 ? 1u : 2u) << recorder.seen[i];
    }
  }
}

TEST(StepPhasesTest, AnEvaluationCanBeLeft) {
  Survivors world(job_of(kF32Wide), 1);
  world.run_epoch(1, 1, 1);
  current_rank = 0;
  Strike strike({.point = kStepEvaluate},
                [](base::MutableByteSpan) { return base::unavailable("struck"); });
  const base::ScopedFaultHandler armed(strike);
  const auto source = make_source(world.job());
  EXPECT_THAT(world.at(0).engine->evaluate(*source, 2).status(),
              StatusIs(StatusCode::kUnavailable));
  current_rank = ~0u;
}

TEST(StepEngineTest, ARankThatWaitsForNobodyIsToldToLeaveByItsFlag) {
  Survivors world(job_of(kF32Wide), 1);
  world.run_epoch(1, 1, 1);
  std::atomic<bool> leave{true};
  EngineOptions options = engine_options(world.job(), base::Rank(0));
  options.leave = &leave;
  world.at(0).engine.reset();
  collective::LocalSwitch hub(1);
  const auto fabric = hub.make_fabric(base::Rank(0));
  auto engine = StepEngine::create(options, *world.at(0).memory, *fabric);
  ASSERT_OK(engine);
  const auto source = make_source(world.job());
  EXPECT_THAT((*engine)->run_step(*source, 1e-2f).status(), StatusIs(StatusCode::kAborted));
  EXPECT_THAT((*engine)->evaluate(*source, 1).status(), StatusIs(StatusCode::kAborted));
  EXPECT_EQ((*engine)->step(), base::Step(1));
}

TEST(StepEngineTest, AHoldThatOneRankAskedForIsSeenByAllInTheSameStep) {
  const TrainJob job = job_of(kF32Wide);
  class Asker final : public base::FaultHandler {
   public:
    explicit Asker(Survivors& world) : world_(world) {}
    base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
      if (current_rank == 2 && name == kStepCompute && world_.at(2).engine->step().value() == 2) {
        world_.at(2).engine->request_hold();
      }
      return base::Status::ok();
    }
    Survivors& world_;
  };
  Survivors world(job, kRanks);
  Asker asker(world);
  const base::ScopedFaultHandler armed(asker);
  world.run_epoch(2, 2, 3);
  for (uint32_t r = 0; r < kRanks; ++r) {
    EXPECT_FALSE(world.at(r).results[1].hold);
    EXPECT_TRUE(world.at(r).results[2].hold);
  }
}

TEST(StepEngineTest, EachSampleIsReadOnceAndTheVoteTellsWhich) {
  TrainJob job = job_of(kF32Wide);
  for (const uint32_t pipelines : {1u, 3u}) {
    for (const uint32_t stages : {1u, 2u}) {
      job.pipelines = pipelines;
      job.stages = stages;
      uint64_t next = 0;
      for (const StepResult& step : train(job).results) {
        EXPECT_EQ(step.first_sample, next);
        EXPECT_EQ(step.sample_count, 16u);
        EXPECT_EQ(step.sample_sum, parallel::sample_marks(step.first_sample, step.sample_count));
        next += step.sample_count;
      }
    }
  }
}

TEST(TensorStoreTest, MakingWeightsCanBeLeftAndAddsOnlyWhatIsMissing) {
  Survivors world(job_of(kF32Wide), 1);
  TensorStore& store = world.at(0).memory->tensors;
  const std::vector<base::TensorId> all = {base::TensorId(0), base::TensorId(1)};
  std::atomic<bool> leave{true};
  EXPECT_THAT(store.add_from_seed(all, &leave), StatusIs(StatusCode::kAborted));
  EXPECT_FALSE(store.has_state());
  leave = false;
  ASSERT_OK(store.add_from_seed(std::span(all).first(1), &leave));
  const float* const place = store.held(all[0]).param.as<float>();
  ASSERT_OK(store.add_from_seed(all, &leave));
  EXPECT_EQ(store.held(all[0]).param.as<float>(), place) << "what is held stays in its place";
  EXPECT_EQ(store.digests().size(), 2u);
}

TEST(TensorStoreTest, AdoptRefusesAnotherDigest) {
  Survivors world(job_of(kF32Wide), 1);
  TensorStore& store = world.at(0).memory->tensors;
  const std::vector<base::TensorId> one = {base::TensorId(3)};
  ASSERT_OK(store.stage(one));
  EXPECT_THAT(store.adopt(one[0], 7),
              StatusIs(StatusCode::kDataLoss, ::testing::HasSubstr("tensor 3 (")));
  EXPECT_FALSE(store.holds(one[0]));
}

TEST(StepEngineTest, CreateNamesATensorThatIsNotHeld) {
  Survivors world(job_of(kF32Wide), 1);
  collective::LocalSwitch hub(1);
  const auto fabric = hub.make_fabric(base::Rank(0));
  EXPECT_THAT(
      StepEngine::create(engine_options(world.job(), base::Rank(0)), *world.at(0).memory, *fabric)
          .status(),
      StatusIs(StatusCode::kFailedPrecondition, ::testing::HasSubstr("token")));
}

}  // namespace
}  // namespace perdure::runtime::engine
