#pragma once
// StepEngine: trains one rank, step by step. A step is a transaction (DESIGN section 5):
//
//   compute   the schedule's forwards and backwards; gradients gather in the sinks
//   reduce    per bucket, among its holders
//   vote      one small all-reduce over all ranks: loss, norm, flags, digests of the state before
//             the step
//   apply     the optimizer, locally; the step is committed
//
// Until the vote's result is there nothing of the committed state has changed; after it nothing can
// fail any more. An attempt whose gradients did not fit their exponents is run again with exponents
// from what it saw: all ranks read the same vote, so all do the same. Gradients that are not finite
// commit the step without the optimizer.
//
// An attempt that is left with an error changes nothing that is committed. When only the vote's
// result was missing the step is PENDING: the sums are still there, and the result that another
// rank has commits it here too (apply_vote). The engine can do nothing else any more; the tensors
// stay in the RankMemory, for the next engine.
//
// Threads: one, but for request_hold() and EngineOptions::leave. Errors: those of the fabric,
// kAborted when it was told to leave, kDataLoss when replicas differ. The engine aborts its fabric
// on an error.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "parallel/schedule.h"
#include "runtime/collective/fabric.h"
#include "runtime/engine/batch_source.h"
#include "runtime/engine/engine_snapshot.h"
#include "runtime/engine/stage_executor.h"
#include "runtime/engine/vote.h"

namespace perdure::runtime::engine {

struct OptimizerOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float epsilon = 1e-8f;
  float weight_decay = 0.1f;  // of tensors with Decay::kYes
  double clip_norm = 1.0;     // of the global gradient norm; 0: no clipping
};

struct EngineOptions {
  parallel::ModelSpec model;
  parallel::Layout layout;
  parallel::Schedule schedule;
  base::Rank rank;
  parallel::BatchShape batch;
  Numerics numerics;
  OptimizerOptions optimizer;
  uint64_t seed = 0;
  base::Epoch epoch;  // to which votes belong
  collective::Timeout timeout{60000};
  // Set by any thread: the engine leaves what it is in. A fabric's abort alone is not seen by a
  // rank that waits for nobody.
  const std::atomic<bool>* leave = nullptr;
};

// Refused after this many attempts at one step: the exponents of the second come from the very
// gradients that it meets again, so a third can only mean broken hardware.
inline constexpr uint32_t kAttemptsMax = 3;

struct StepResult {
  base::Step step;         // committed steps, this one included
  double loss = 0.0;       // mean over all tokens of the step
  double grad_norm = 0.0;  // before clipping
  uint32_t attempts = 1;
  Applied applied = Applied::kYes;
  uint64_t digest_before = 0;  // of the whole job's committed state before this step
  uint64_t first_sample = 0;   // samples [first, first + count) belong to the step,
  uint64_t sample_count = 0;   // so many were read,
  uint64_t sample_sum = 0;     // with this sum of parallel::sample_mark
  bool hold = false;           // some rank asked for it: all stop after this step
};

struct JobDigests {
  uint64_t state = 0;   // everything that is committed
  uint64_t params = 0;  // parameters only
};

class StepEngine {
 public:
  // With memory of its own, in the initial state (step 0).
  static base::Result<std::unique_ptr<StepEngine>> create(EngineOptions options,
                                                          kernels::Device& device,
                                                          collective::Fabric& fabric);
  // On the state that `memory` holds, which outlives the engine; one engine at a time. Tensors that
  // are not of this rank are dropped with the first step that is committed.
  // kFailedPrecondition names a tensor of this rank that is not held.
  static base::Result<std::unique_ptr<StepEngine>> create(EngineOptions options, RankMemory& memory,
                                                          collective::Fabric& fabric);
  virtual ~StepEngine() = default;

  virtual base::Result<StepResult> run_step(BatchSource& source, float learning_rate) = 0;
  // The attempt at the next step that lacks only its vote's result; 0: none.
  virtual uint32_t pending_attempt() const = 0;
  // Commits the pending step with the words of another rank's vote, as though the own all-reduce
  // had returned them. kFailedPrecondition, and nothing has changed: nothing is pending, or another
  // attempt; the words are not of this model, not of this state, or do not commit a step.
  virtual base::Result<StepResult> apply_vote(uint32_t attempt, std::span<const uint64_t> words,
                                              float learning_rate) = 0;
  // The vote that made the committed step.
  virtual const CommittedVote& last_vote() const = 0;
  // Any thread. Raises the flag in the next votes.
  virtual void request_hold() = 0;
  // Mean loss over samples [0, batches * micro_batch) of `source`. Collective; changes no state.
  virtual base::Result<double> evaluate(BatchSource& source, uint32_t batches) = 0;
  // Of the committed state. Collective. Also checks that replicas agree.
  virtual base::Result<JobDigests> digests() = 0;

  virtual base::Step step() const = 0;
  virtual uint64_t samples_consumed() const = 0;
  virtual uint32_t skipped_in_a_row() const = 0;
  // Of the committed state, ascending. Computes nothing.
  virtual std::vector<TensorDigest> tensor_digests() const = 0;
  // The committed state of this rank's tensors, and back. Loading needs the same model and numerics
  // and a snapshot that has every tensor of this rank: the layout may differ. kInvalidArgument
  // names what is missing or wrong.
  virtual EngineSnapshot save() const = 0;
  virtual base::Status load(const EngineSnapshot& snapshot) = 0;

  virtual size_t allocated_bytes() const = 0;
};

// Bytes that this rank will allocate on its device: its tensors, and what steps need.
size_t engine_bytes(const EngineOptions& options);
// The part of it that is neither model state nor activations: scratch of the layers.
size_t engine_scratch_bytes(const EngineOptions& options);

}  // namespace perdure::runtime::engine
