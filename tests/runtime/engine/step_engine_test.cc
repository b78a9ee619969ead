#include "runtime/engine/step_engine.h"

#include <cmath>
#include <map>
#include <mutex>

#include "tests/runtime/engine/train_harness.h"

namespace perdure::runtime::engine {
namespace {

using parallel::Family;
using ::perdure::testing::StatusIs;

// Saves every rank's snapshot and merges them into one of the whole model.
class Collector {
 public:
  std::function<void(StepEngine&)> saver() {
    return [this](StepEngine& engine) {
      const std::lock_guard lock(mutex_);
      EngineSnapshot part = engine.save();
      part.tensors.merge(whole_.tensors);
      whole_ = std::move(part);
    };
  }
  EngineSnapshot& whole() { return whole_; }

 private:
  std::mutex mutex_;
  EngineSnapshot whole_;
};

std::function<void(StepEngine&)> loader(const EngineSnapshot& snapshot) {
  return [&snapshot](StepEngine& engine) { ASSERT_OK(engine.load(snapshot)); };
}

TrainJob small_job(uint32_t steps) {
  TrainJob job;
  job.model = tiny_model(Family::kGpt2);
  job.numerics.width_bits = 32;
  job.numerics.block_elements = 64;
  job.steps = steps;
  return job;
}

TEST(StepEngineTest, AResumedRunGivesTheDigestsOfAnUnbrokenOneInAnyLayout) {
  const TrainTrace unbroken = train(small_job(6));
  Collector collector;
  TrainJob first = small_job(3);
  first.pipelines = 2;
  first.stages = 2;
  first.on_end = collector.saver();
  train(first);
  EXPECT_EQ(collector.whole().step, base::Step(3));
  EXPECT_EQ(collector.whole().samples_consumed, 3u * 8 * 2);

  TrainJob second = small_job(3);
  second.pipelines = 3;
  second.on_start = loader(collector.whole());
  const TrainTrace resumed = train(second);
  for (size_t i = 0; i <= 3; ++i)
    EXPECT_EQ(resumed.digests[i], unbroken.digests[3 + i]) << "step " << 3 + i;
  EXPECT_EQ(resumed.params, unbroken.params);
}

TEST(StepEngineTest, LoadRefusesASnapshotThatDoesNotFitAndKeepsTheState) {
  Collector collector;
  TrainJob job = small_job(1);
  job.on_end = collector.saver();
  const TrainTrace before = train(job);
  EngineSnapshot missing = collector.whole();
  missing.tensors.erase(missing.tensors.begin());
  EngineSnapshot foreign = collector.whole();
  foreign.tensors.begin()->second.m.pop_back();
  job.on_end = nullptr;
  job.on_start = [&](StepEngine& engine) {
    EXPECT_THAT(engine.load(missing),
                StatusIs(base::StatusCode::kInvalidArgument, ::testing::HasSubstr("lacks")));
    EXPECT_THAT(engine.load(foreign), StatusIs(base::StatusCode::kInvalidArgument));
  };
  EXPECT_EQ(train(job).digests, before.digests);
}

TEST(StepEngineTest, GradientsThatDoNotFitRunTheStepAgainAlikeInAllLayouts) {
  Collector collector;
  TrainJob job = small_job(2);
  job.on_end = collector.saver();
  EXPECT_EQ(train(job).results.front().attempts, 2u) << "the first step calibrates";
  for (auto& [name, tensor] : collector.whole().tensors) {
    for (int16_t& e : tensor.exponents) e = static_cast<int16_t>(std::min(100, e + 9));
  }
  job.on_end = nullptr;
  job.on_start = loader(collector.whole());
  const TrainTrace one = train(job);
  EXPECT_EQ(one.results[0].attempts, 2u);
  EXPECT_EQ(one.results[1].attempts, 1u);
  job.pipelines = 2;
  job.stages = 3;
  const TrainTrace six = train(job);
  EXPECT_EQ(six.digests, one.digests);
  EXPECT_EQ(six.results[0].attempts, 2u);
}

TEST(StepEngineTest, AStepWithGradientsThatAreNotFiniteIsCommittedWithoutTheOptimizer) {
  Collector collector;
  TrainJob job = small_job(1);
  job.on_end = collector.saver();
  train(job);
  collector.whole().tensors.at("head.norm.gamma").param[3] = std::nanf("");
  job.on_end = nullptr;
  job.on_start = loader(collector.whole());
  job.on_end = [](StepEngine& engine) {
    EXPECT_EQ(engine.skipped_in_a_row(), 2u);
    EXPECT_EQ(engine.save().skipped_in_a_row, 2u);
  };
  job.steps = 2;
  const TrainTrace one = train(job);
  EXPECT_EQ(one.results[0].applied, Applied::kNo);
  EXPECT_EQ(one.results[1].step, base::Step(3));
  job.pipelines = 2;
  job.stages = 2;
  EXPECT_EQ(train(job).digests, one.digests);
}

TEST(StepEngineTest, AReplicaThatDiffersIsFoundOneStepLater) {
  TrainJob job = small_job(1);
  job.pipelines = 2;
  Collector collector;
  job.on_end = collector.saver();
  train(job);
  EngineSnapshot flipped = collector.whole();
  auto& value = flipped.tensors.begin()->second.param[0];
  value = std::nextafter(value, 1e9f);
  job.on_end = nullptr;
  std::mutex mutex;
  uint32_t loaded = 0;
  job.steps = 0;
  job.on_start = [&](StepEngine& engine) {
    const std::lock_guard lock(mutex);
    ASSERT_OK(engine.load(loaded++ == 0 ? flipped : collector.whole()));
  };
  job.expect_digests = StatusIs(base::StatusCode::kDataLoss);
  train(job);
}

}  // namespace
}  // namespace perdure::runtime::engine
