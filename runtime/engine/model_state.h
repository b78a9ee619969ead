#pragma once
// ModelState: the tensors that one rank holds, with everything that a committed step is made of:
// parameters, Adam's moments, exponents; and beside it what one attempt of a step writes: gradient
// accumulators and their maxima.
//
//   memory (one device buffer)
//     parameters | m | v | bf16 copies               by tensor id
//     accumulators | maxima                          by bucket, so that a bucket is one piece to
//     reduce exponents | tracked maxima
//
// Threads: the engine thread only.

#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "parallel/layout.h"
#include "runtime/engine/memory_carver.h"
#include "runtime/engine/numerics.h"

namespace perdure::runtime::engine {

struct HeldTensor {
  base::TensorId id;
  const parallel::TensorSpec* spec = nullptr;
  kernels::Tensor param, m, v;  // f32 [elements]
  kernels::Tensor low;          // bf16 [elements], or absent
  kernels::GradSink sink;       // all addends of a step, over all holders after the reduction
  ScaleSpans scale;
  std::span<uint64_t> chunk_digests;
  uint64_t digest = 0;  // of the committed state of this tensor

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
  parallel::ComputeType compute = parallel::ComputeType::kF32;
  Numerics numerics;
  uint64_t seed = 0;
};

// Whether the optimizer ran in a committed step: a step whose gradients are not finite is committed
// without it.
enum class Applied : uint8_t { kNo, kYes };
// Exponents are meaningless until one attempt of the first step has shown how large gradients are.
enum class Calibration : uint8_t { kPending, kDone };

class ModelState {
 public:
  // Carves all memory; parameters are not set yet.
  ModelState(const ModelStateOptions& options, MemoryCarver& carver);

  std::span<HeldTensor> tensors() { return tensors_; }
  std::span<const HeldTensor> tensors() const { return tensors_; }
  HeldTensor& held(base::TensorId id);
  const std::vector<Bucket>& buckets() const { return buckets_; }
  uint32_t flags() const { return flags_.load(std::memory_order_relaxed); }
  Calibration calibration() const { return calibration_; }
  void set_calibration(Calibration value) { calibration_ = value; }  // from a snapshot

  // Initial weights, each a function of (seed, tensor name, element) only; zero moments.
  void initialise(kernels::Ops& ops, kernels::Stream& stream);
  // Before an attempt: accumulators, maxima and flags to zero.
  void begin_attempt(kernels::Ops& ops, kernels::Stream& stream);
  // After an attempt that must run again.
  void recalibrate();
  // After the optimizer has run: exponents for the next step, digests of the new state.
  void commit(Applied applied);
  // Digests, and the bf16 copies, from the state as it is (after initialise or load).
  void refresh(kernels::Ops& ops, kernels::Stream& stream);

  // XXH3 of the parameters of one tensor.
  uint64_t params_digest(const HeldTensor& tensor) const;

  // Bytes that the constructor carves.
  static size_t bytes(const ModelStateOptions& options);

 private:
  void carve_accumulators(const ModelStateOptions& options, MemoryCarver& carver);
  void carve_scales(MemoryCarver& carver);
  void set_digest(HeldTensor& tensor);

  std::vector<HeldTensor> tensors_;
  std::vector<Bucket> buckets_;
  std::span<std::byte> all_accumulators_;
  std::span<std::byte> all_maxima_;
  std::vector<uint64_t> chunk_digests_;
  std::vector<uint64_t> digest_scratch_;
  Numerics numerics_;
  uint64_t seed_ = 0;
  Calibration calibration_ = Calibration::kPending;
  std::atomic<uint32_t> flags_{0};
};

}  // namespace perdure::runtime::engine
