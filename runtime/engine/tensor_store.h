#pragma once
// TensorStore: the committed state of one rank. It outlives engines: a StepEngine computes on the
// tensors where they lie, and when the layout changes the next engine finds those that stay on the
// rank in their place, untouched.
//
//   block of a tensor (64-byte borders)
//     parameters | m | v | tracked maxima | exponents    `wire`: what travels, what digests cover
//     bf16 copy of the parameters                        derived
//
// A tensor is held, or staged (its memory is there, its content is not yet of use), or absent.
//
// Threads: the engine thread.

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "parallel/activation_plan.h"
#include "parallel/model_spec.h"
#include "runtime/engine/block_pool.h"
#include "runtime/engine/numerics.h"

namespace perdure::runtime::engine {

// What a step moves from k to k + 1 beside the tensors.
struct CommittedScalars {
  base::Step step;
  uint64_t samples_consumed = 0;  // the data cursor
  uint64_t applied_steps = 0;     // optimizer steps; fewer than `step` when steps were skipped
  bool calibrated = false;        // exponents are valid; false at step 0
  uint32_t skipped_in_a_row = 0;  // newest steps that were committed without the optimizer
  friend bool operator==(const CommittedScalars&, const CommittedScalars&) = default;
};

// The vote whose result made the committed step.
struct CommittedVote {
  base::Epoch epoch;
  uint32_t attempt = 0;  // 0: there is none here, the state came otherwise
  std::vector<uint64_t> words;
};

struct TensorDigest {
  base::TensorId tensor;
  uint64_t digest = 0;
  friend bool operator==(const TensorDigest&, const TensorDigest&) = default;
};

struct StoredTensor {
  base::TensorId id;
  const parallel::TensorSpec* spec = nullptr;
  std::span<std::byte> block;
  std::span<std::byte> wire;
  kernels::Tensor param, m, v;  // f32 [elements]
  kernels::Tensor low;          // bf16 [elements], or absent
  std::span<float> tracked;
  std::span<int16_t> exponents;
  std::vector<uint64_t> chunk_digests;
  uint64_t digest = 0;  // over chunk digests, exponents and tracked maxima
};

struct StoreOptions {
  parallel::ModelSpec model;
  parallel::ComputeType compute = parallel::ComputeType::kF32;
  Numerics numerics;
  uint64_t seed = 0;
};

class TensorStore {
 public:
  TensorStore(StoreOptions options, kernels::Device& device);
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  const parallel::ModelSpec& model() const { return options_.model; }
  // False: nothing is held, or an optimizer was interrupted by an error of the device.
  bool has_state() const { return whole_ && !held_.empty(); }
  bool holds(base::TensorId id) const { return held_.contains(id); }
  StoredTensor& held(base::TensorId id);
  size_t held_count() const { return held_.size(); }
  std::vector<TensorDigest> digests() const;  // of what is held, ascending; computes nothing
  const CommittedScalars& committed() const { return committed_; }
  const CommittedVote& vote() const { return vote_; }
  size_t wire_bytes(base::TensorId id) const;
  size_t allocated_bytes() const { return pool_.allocated_bytes(); }
  kernels::Device& device() { return device_; }

  // What is held of another state than `scalars` is dropped.
  void resume_at(const CommittedScalars& scalars);
  // Initial weights, each a function of (seed, tensor name, element) only; zero moments. What is
  // held stays. Only at step 0. kAborted when `leave` was set meanwhile.
  base::Status add_from_seed(std::span<const base::TensorId> ids, const std::atomic<bool>* leave);

  // Memory for tensors that will arrive; those that are held may arrive again.
  base::Status stage(std::span<const base::TensorId> ids);
  StoredTensor& staged(base::TensorId id);
  // The tensor is whole: it becomes held, in place of an older copy. kDataLoss when its digest is
  // another; it is then not held.
  base::Status adopt(base::TensorId id, uint64_t digest);
  void drop_staged();
  // Drops all others.
  void retain(std::span<const base::TensorId> ids);

  // -- the engine's
  void begin_commit();  // the tensors and scalars are being changed
  void end_commit(const CommittedScalars& scalars);
  void set_vote(base::Epoch epoch, uint32_t attempt, std::span<const std::byte> words);
  void set_digest(StoredTensor& tensor);
  // Chunk digests, digest and bf16 copy from the state as it is.
  void refresh(StoredTensor& tensor);

 private:
  using Tensors = std::map<base::TensorId, StoredTensor>;  // addresses stay
  StoredTensor carve(base::TensorId id, std::span<std::byte> block) const;
  size_t block_bytes(base::TensorId id) const;
  base::Status initialise(StoredTensor& tensor, const std::atomic<bool>* leave);
  void drop(Tensors& from, base::TensorId id);

  const StoreOptions options_;
  kernels::Device& device_;
  std::unique_ptr<kernels::Stream> stream_;
  BlockPool pool_;
  Tensors held_;
  Tensors staged_;
  CommittedScalars committed_;
  CommittedVote vote_;
  bool whole_ = true;
  std::vector<uint64_t> digest_scratch_;
};

// What outlives an engine: the committed state, and the memory in which steps are computed.
struct RankMemory {
  RankMemory(StoreOptions options, kernels::Device& device)
      : tensors(std::move(options), device), step(device) {}
  TensorStore tensors;
  GrowingBuffer step;
};

// Elements that share an exponent, and how many such blocks the tensor has.
int64_t block_elements_of(const parallel::TensorSpec& spec, const Numerics& numerics);
int64_t blocks_of(const parallel::TensorSpec& spec, const Numerics& numerics);
// Padding of vectors of 4-byte elements to 64 bytes.
inline int64_t padded_elements(int64_t elements) { return (elements + 15) / 16 * 16; }
// Of the block of one tensor.
size_t stored_bytes(const parallel::TensorSpec& spec, parallel::ComputeType compute,
                    const Numerics& numerics);

}  // namespace perdure::runtime::engine
