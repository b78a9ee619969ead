#pragma once
// Trains a small model with ranks as threads, and gives what a test compares: the digests after
// each step.

#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/step_engine.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::engine {

struct TrainJob {
  parallel::ModelConfig model;
  uint32_t pipelines = 1;
  uint32_t stages = 1;
  uint32_t micro_batches = 8;
  parallel::BatchShape batch{.micro_batch = 2, .compute = parallel::ComputeType::kF32};
  Numerics numerics;
  OptimizerOptions optimizer;
  uint64_t seed = 7;
  uint32_t steps = 4;
  float learning_rate = 1e-2f;
  int threads = 1;
  std::string device = "cpu";
  // Called on each rank after creation, before the first step, and after the last one.
  std::function<void(StepEngine&)> on_start;
  std::function<void(StepEngine&)> on_end;
  // What digests() is expected to say at the end; when it is no ok, the run ends there.
  ::testing::Matcher<base::Status> expect_digests = ::perdure::testing::IsOk();
};

struct TrainTrace {
  std::vector<uint64_t> digests;  // of the committed state after step 0, 1, ..., steps
  uint64_t params = 0;
  std::vector<StepResult> results;
  double evaluation = 0.0;
};

// What `train` uses for one rank.
EngineOptions engine_options(const TrainJob& job, base::Rank rank);
std::unique_ptr<BatchSource> make_source(const TrainJob& job);

parallel::ModelConfig tiny_model(parallel::Family family);
// Ranks that disagree on anything of the trace fail the test.
TrainTrace train(const TrainJob& job);

}  // namespace perdure::runtime::engine
