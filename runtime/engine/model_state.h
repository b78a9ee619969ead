#pragma once
// ModelState: how one step sees the tensors of its rank. The committed state lies in the
// TensorStore (parameters, moments, exponents); beside it is what one attempt of a step writes:
// gradient accumulators and their maxima, and the scales that the attempt works with, which become
// the committed ones when the step does.
//
//   memory of the step
//     accumulators | maxima    by bucket, so that a bucket is one piece to reduce
//     tracked maxima | exponents
//
// Threads: the engine thread only.

#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "parallel/layout.h"
#include "runtime/engine/memory_carver.h"
#include "runtime/engine/numerics.h"
#include "runtime/engine/tensor_store.h"

namespace perdure::runtime::engine {

struct HeldTensor {
  base::TensorId id;
  const parallel::TensorSpec* spec = nullptr;
  kernels::Tensor param, m, v;  // f32 [elements]
  kernels::Tensor low;          // bf16 [elements], or absent
  kernels::GradSink sink;       // all addends of a step, over all holders after the reduction
  ScaleSpans scale;             // of the attempt
  StoredTensor* stored = nullptr;

  uint64_t digest() const { return stored->digest; }  // of the committed state of this tensor

  // The parameter as matrix products read it: [shape[0], shape[1]] of the compute type.
  kernels::Tensor matrix() const;
  kernels::Tensor vector() const { return param; }
};

struct Bucket {
  std::vector<base::TensorId> tensors;
  std::vector<base::Rank> holders;
  std::span<std::byte> accumulators;  // with the padding between tensors, which is zero
  std::span<std::byte> maxima;        // f32
};

struct ModelStateOptions {
  const parallel::ModelSpec* model = nullptr;
  const parallel::Layout* layout = nullptr;
  base::Rank rank;
  Numerics numerics;
};

// Whether the optimizer ran in a committed step: a step whose gradients are not finite is committed
// without it.
enum class Applied : uint8_t { kNo, kYes };
// Exponents are meaningless until one attempt of the first step has shown how large gradients are.
enum class Calibration : uint8_t { kPending, kDone };

class ModelState {
 public:
  // `store` holds every tensor of the rank, and outlives this.
  ModelState(const ModelStateOptions& options, TensorStore& store, MemoryCarver& carver);

  std::span<HeldTensor> tensors() { return tensors_; }
  std::span<const HeldTensor> tensors() const { return tensors_; }
  HeldTensor& held(base::TensorId id);
  const std::vector<Bucket>& buckets() const { return buckets_; }
  uint32_t flags() const { return flags_.load(std::memory_order_relaxed); }
  Calibration calibration() const { return calibration_; }

  // Before the first attempt at a step: the scales are the committed ones.
  void begin_step();
  // Before an attempt: accumulators, maxima and flags to zero.
  void begin_attempt(kernels::Ops& ops, kernels::Stream& stream);
  // After an attempt that must run again: other scales.
  void recalibrate();
  // After the optimizer has run: the attempt's scales, moved on, are the committed ones, and the
  // digests are those of the new state.
  void commit(Applied applied);

  // XXH3 of the parameters of one tensor.
  uint64_t params_digest(const HeldTensor& tensor) const;

  // Bytes that the constructor carves.
  static size_t bytes(const ModelStateOptions& options);

 private:
  void carve_accumulators(const ModelStateOptions& options, MemoryCarver& carver);
  void carve_scales(MemoryCarver& carver);

  TensorStore& store_;
  std::vector<HeldTensor> tensors_;
  std::vector<Bucket> buckets_;
  std::span<std::byte> all_accumulators_;
  std::span<std::byte> all_maxima_;
  Numerics numerics_;
  Calibration calibration_ = Calibration::kPending;
  std::atomic<uint32_t> flags_{0};
};

}  // namespace perdure::runtime::engine
