#include "runtime/engine/grad_router.h"

namespace perdure::runtime::engine {
namespace {

bool uses_grains(const Numerics& numerics) {
  return numerics.mode == SumMode::kExact && numerics.grain > 1;
}

}  // namespace

size_t GradRouter::bytes(const parallel::ModelSpec& model, const parallel::StagePlace& place,
                         const Numerics& numerics) {
  if (!uses_grains(numerics)) return 0;
  size_t total = 0;
  for (uint32_t l = place.layer_begin; l < place.layer_end; ++l) {
    for (const parallel::TensorUseInLayer& use : model.layers[l].tensors) {
      total += (static_cast<size_t>(model.tensor(use.tensor).elements()) * 4 + 63) / 64 * 64;
    }
  }
  return total;
}

GradRouter::GradRouter(const parallel::ModelSpec& model, const parallel::StagePlace& place,
                       const Numerics& numerics, ModelState& state, MemoryCarver& carver)
    : grain_(uses_grains(numerics) ? numerics.grain : 1) {
  for (uint32_t l = place.layer_begin; l < place.layer_end; ++l) {
    for (const parallel::TensorUseInLayer& in_layer : model.layers[l].tensors) {
      Use use{base::LayerId(l), in_layer.role, &state.held(in_layer.tensor), kernels::Tensor()};
      if (grain_ > 1) use.grain = carver.vector(kernels::DType::kF32, use.tensor->spec->elements());
      uses_.push_back(use);
    }
  }
}

kernels::GradSink GradRouter::sink(base::LayerId layer, parallel::Role role) const {
  for (const Use& use : uses_) {
    if (use.layer != layer || use.role != role) continue;
    if (use.grain.is_absent()) return use.tensor->sink;
    kernels::GradSink sink;
    sink.kind = kernels::GradKind::kFloat;
    sink.accumulator = use.grain.data();
    sink.elements = use.grain.elements();
    sink.block_elements = use.tensor->sink.block_elements;
    return sink;
  }
  CHECK(false) << "layer " << layer << " has no such tensor";
  return {};
}

void GradRouter::finish_micro_batch(kernels::Ops& ops, kernels::Stream& stream,
                                    base::MicroBatch micro_batch) {
  if (grain_ == 1 || (micro_batch.value() + 1) % grain_ != 0) return;
  for (const Use& use : uses_) {
    ops.accumulate_gradient(stream, use.grain, use.tensor->sink);
    ops.fill_zero(stream, use.grain);
  }
}

void GradRouter::reset(kernels::Ops& ops, kernels::Stream& stream) {
  if (grain_ == 1) return;
  for (const Use& use : uses_) ops.fill_zero(stream, use.grain);
}

}  // namespace perdure::runtime::engine
