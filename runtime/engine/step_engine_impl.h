#pragma once
// The StepEngine behind StepEngine::create. Internal to runtime/engine.
//
//   step_engine.cc    an attempt at a step, its commit
//   evaluation.cc     what is collective but changes nothing: evaluation, digests
//   engine_state.cc   the committed state out and in

#include <memory>
#include <vector>

#include "runtime/engine/step_engine.h"

namespace perdure::runtime::engine {

class StepEngineImpl : public StepEngine {
 public:
  StepEngineImpl(EngineOptions options, kernels::Device& device,
                 std::unique_ptr<kernels::Stream> stream,
                 std::unique_ptr<kernels::DeviceBuffer> buffer, collective::Fabric& fabric);

  base::Result<StepResult> run_step(BatchSource& source, float learning_rate) override;

  base::Result<double> evaluate(BatchSource& source, uint32_t batches) override;
  base::Result<JobDigests> digests() override;
  EngineSnapshot save() const override;
  base::Status load(const EngineSnapshot& snapshot) override;

  base::Step step() const override { return step_; }
  uint64_t samples_consumed() const override { return samples_consumed_; }
  size_t allocated_bytes() const override { return buffer_->size_bytes(); }

 private:
  uint64_t samples_per_step() const {
    return uint64_t{o_.layout.micro_batches} * static_cast<uint64_t>(o_.batch.micro_batch);
  }
  double tokens_per_micro_batch() const {
    return static_cast<double>(o_.batch.micro_batch * o_.model.config.context);
  }
  uint32_t tag_step() const { return static_cast<uint32_t>(step_.value()); }

  // Compute, reduce and vote. Changes nothing that is committed.
  base::Status run_attempt(BatchSource& source);

  // Of one bucket, among its holders.
  base::Status reduce(uint32_t index);

  base::Status vote();

  base::Status exchange_vote();

  kernels::Tensor norm_slot(base::TensorId id) const {
    return kernels::Tensor::vector(norms_.as<double>() + id.value(), kernels::DType::kF64, 1);
  }

  base::Result<StepResult> commit(double squared_norm, Applied applied, uint32_t attempts,
                                  float learning_rate);

  void apply(double multiplier, float learning_rate);

  // Of the state before the step whose vote has just been read.
  uint64_t state_digest();

  base::Status run_evaluation(BatchSource& source, uint32_t batches);

  const EngineOptions o_;
  kernels::Ops& ops_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<kernels::DeviceBuffer> buffer_;
  MemoryCarver carver_;
  collective::Fabric& fabric_;
  const parallel::JobTopology topology_;
  ModelState state_;
  StageMemory memory_;
  GradRouter router_;
  kernels::Tensor norms_;  // f64 [tensors of the model]
  StageExecutor executor_;
  Vote vote_;
  std::vector<base::Rank> everyone_;
  std::vector<std::byte> reduce_scratch_;
  std::vector<HeldTensor*> spoken_;  // for which this rank speaks in the vote
  std::vector<uint64_t> tensor_digests_;

  base::Step step_;
  uint64_t samples_consumed_ = 0;
  uint64_t applied_steps_ = 0;
};

}  // namespace perdure::runtime::engine
