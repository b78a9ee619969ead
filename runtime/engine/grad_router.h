#pragma once
// GradRouter: where the gradient of a tensor goes, by use. A use is a tensor in a layer; a tied
// table has two.
//
// grain 1 (and fast mode): straight into the tensor's accumulator, micro-batch by micro-batch.
// grain G > 1: into an f32 buffer of the use for G consecutive micro-batches, then converted once.
// The buffer belongs to the use, not to the tensor: two uses of a tied table may sit on one rank or
// on two, and the sum over both must be one of integers.

#include <vector>

#include "runtime/engine/model_state.h"

namespace perdure::runtime::engine {

class GradRouter {
 public:
  GradRouter(const parallel::ModelSpec& model, const parallel::StagePlace& place,
             const Numerics& numerics, ModelState& state, MemoryCarver& carver);

  kernels::GradSink sink(base::LayerId layer, parallel::Role role) const;
  // After all layers' weight gradients of a micro-batch. Converts at the end of a grain.
  void finish_micro_batch(kernels::Ops& ops, kernels::Stream& stream, base::MicroBatch micro_batch);
  // At the start of an attempt.
  void reset(kernels::Ops& ops, kernels::Stream& stream);

  static size_t bytes(const parallel::ModelSpec& model, const parallel::StagePlace& place,
                      const Numerics& numerics);

 private:
  struct Use {
    base::LayerId layer;
    parallel::Role role;
    HeldTensor* tensor;
    kernels::Tensor grain;  // f32 [elements], absent without grains
  };
  std::vector<Use> uses_;
  const uint32_t grain_;
};

}  // namespace perdure::runtime::engine
