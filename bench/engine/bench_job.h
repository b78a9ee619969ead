#pragma once
// A one-rank training job for measuring: made-up tokens, steps as fast as they go.

#include <memory>
#include <string>

#include "kernels/device.h"
#include "runtime/collective/local_fabric.h"
#include "runtime/engine/step_engine.h"

namespace perdure::bench {

struct BenchJob {
  std::string name;
  parallel::ModelConfig model;
  int64_t micro_batch = 1;
  uint32_t micro_batches = 1;
  parallel::ComputeType compute = parallel::ComputeType::kF32;
  runtime::engine::Numerics numerics;
};

// Matrix products of one step, forward and backward, and causal attention: 2 flops a multiply-add.
double step_flops(const BenchJob& job);
int64_t step_tokens(const BenchJob& job);

class BenchRun {
 public:
  // `device` outlives the run.
  BenchRun(const BenchJob& job, kernels::Device& device);
  // Seconds of one step.
  double step();
  double loss() const { return loss_; }
  uint64_t attempts_again() const { return attempts_again_; }
  // The fastest of `count` steps after two that warm up.
  double best_of(int count);

 private:
  class ChainedTokens;
  runtime::collective::LocalSwitch hub_;
  std::unique_ptr<runtime::collective::Fabric> fabric_;
  std::unique_ptr<runtime::engine::BatchSource> source_;
  std::unique_ptr<runtime::engine::StepEngine> engine_;
  double loss_ = 0.0;
  uint64_t attempts_again_ = 0;
};

double now_seconds();

}  // namespace perdure::bench
