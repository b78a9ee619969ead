#pragma once
// The StepEngine behind StepEngine::create. Internal to runtime/engine.
//
//   step_engine.cc    an attempt at a step: compute, reduce, vote
//   step_commit.cc    what a vote's result leads to
//   evaluation.cc     what is collective but changes nothing: evaluation, digests
//   engine_state.cc   the committed state out and in

#include <memory>
#include <vector>

#include "runtime/engine/step_engine.h"

namespace perdure::runtime::engine {

class StepEngineImpl : public StepEngine {
 public:
  // `own`: the memory, when nobody else owns it.
  StepEngineImpl(EngineOptions options, std::unique_ptr<RankMemory> own, RankMemory& rank_memory,
                 std::unique_ptr<kernels::Stream> stream, kernels::DeviceBuffer& buffer,
                 collective::Fabric& fabric);

  base::Result<StepResult> run_step(BatchSource& source, float learning_rate) override;
  uint32_t pending_attempt() const override { return pending_; }
  base::Result<StepResult> apply_vote(uint32_t attempt, std::span<const uint64_t> words,
                                      float learning_rate) override;
  const CommittedVote& last_vote() const override { return store_.vote(); }
  void request_hold() override { hold_.store(true, std::memory_order_relaxed); }

  base::Result<double> evaluate(BatchSource& source, uint32_t batches) override;
  base::Result<JobDigests> digests() override;
  EngineSnapshot save() const override;
  base::Status load(const EngineSnapshot& snapshot) override;

  base::Step step() const override { return store_.committed().step; }
  uint64_t samples_consumed() const override { return store_.committed().samples_consumed; }
  uint32_t skipped_in_a_row() const override { return store_.committed().skipped_in_a_row; }
  std::vector<TensorDigest> tensor_digests() const override;
  size_t allocated_bytes() const override {
    return store_.allocated_bytes() + rank_memory_.step.allocated_bytes();
  }

 private:
  uint64_t samples_per_step() const {
    return uint64_t{o_.layout.micro_batches} * static_cast<uint64_t>(o_.batch.micro_batch);
  }
  double tokens_per_micro_batch() const {
    return static_cast<double>(o_.batch.micro_batch * o_.model.config.context);
  }
  uint32_t tag_step() const { return static_cast<uint32_t>(step().value()); }

  // What a vote leads to.
  enum class Verdict : uint8_t { kApply, kSkip, kAgain };

  // Compute, reduce and vote. Changes nothing that is committed.
  base::Status run_attempt(BatchSource& source);
  base::Status run_instruction(const parallel::Instruction& instruction);
  // Ends what is in flight, so that its memory may be used again; gives back `why`.
  base::Status give_up(base::Status why);
  base::Status check_left() const;

  // Of one bucket, among its holders.
  base::Status reduce(uint32_t index);

  base::Status vote();

  base::Status exchange_vote();

  kernels::Tensor norm_slot(base::TensorId id) const {
    return kernels::Tensor::vector(norms_.as<double>() + id.value(), kernels::DType::kF64, 1);
  }

  // From the vote alone.
  base::Result<Verdict> judge() const;
  base::Result<StepResult> commit(Verdict verdict, uint32_t attempt, float learning_rate);

  void drop_strangers();
  void apply(uint64_t applied_steps, double multiplier, float learning_rate);

  // Of the state before the step whose vote has just been read.
  uint64_t state_digest();

  base::Status run_evaluation(BatchSource& source, uint32_t batches);

  const EngineOptions o_;
  const std::unique_ptr<RankMemory> own_memory_;
  RankMemory& rank_memory_;
  TensorStore& store_;
  kernels::Ops& ops_;
  std::unique_ptr<kernels::Stream> stream_;
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

  std::atomic<bool> hold_{false};
  uint32_t attempt_ = 0;
  uint32_t pending_ = 0;
  bool is_computed_ = false;  // this attempt has come by step.compute
  bool is_reducing_ = false;  // ... and by step.reduce
};

}  // namespace perdure::runtime::engine
