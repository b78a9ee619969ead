#include "runtime/engine/stage_memory.h"

#include <algorithm>

#include "kernels/linear_cross_entropy.h"

namespace perdure::runtime::engine {
namespace {

using kernels::DType;
using kernels::Tensor;
using parallel::Activation;
using parallel::LayerKind;

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t rows_of(const StageMemoryOptions& o) {
  return o.batch.micro_batch * o.model->config.context;
}

DType compute_dtype(const StageMemoryOptions& o) {
  return o.batch.compute == parallel::ComputeType::kBF16 ? DType::kBF16 : DType::kF32;
}

bool holds_head(const StageMemoryOptions& o) {
  return o.model->layers[o.place.layer_end - 1].kind == LayerKind::kHead;
}

int64_t ffn_in_width(const parallel::ModelConfig& c) {
  return c.family == parallel::Family::kGpt2 ? c.ffn_width : 2 * c.ffn_width;
}

int64_t vector_width(const parallel::ModelConfig& c) {
  return std::max({ffn_in_width(c), (c.heads + 2 * c.kv_heads) * c.head_size(), 2 * c.width});
}

size_t head_workspace_bytes(const StageMemoryOptions& o) {
  if (!holds_head(o)) return 0;
  const parallel::ModelConfig& c = o.model->config;
  return kernels::linear_cross_entropy_workspace_bytes({.rows = rows_of(o),
                                                        .width = c.width,
                                                        .vocabulary = c.vocabulary,
                                                        .dtype = compute_dtype(o)});
}

parallel::StagePosition position_of(const StageMemoryOptions& o, uint32_t layer) {
  return layer + 1 == o.place.layer_end ? parallel::StagePosition::kLastOfStage
                                        : parallel::StagePosition::kInner;
}

Tensor carve(MemoryCarver& carver, const parallel::BufferSpec& spec) {
  const DType dtype = spec.element_bytes == 2 ? DType::kBF16 : DType::kF32;
  if (spec.cols == 1) return carver.vector(dtype, spec.rows);
  return carver.matrix(dtype, spec.rows, spec.cols);
}

// One gradient set serves all layers when backward is fused: they are used one after the other.
uint32_t first_block(const StageMemoryOptions& o) {
  for (uint32_t l = o.place.layer_begin; l < o.place.layer_end; ++l) {
    if (o.model->layers[l].kind == LayerKind::kBlock) return l;
  }
  return o.place.layer_begin;
}

}  // namespace

size_t StageMemory::bytes(const StageMemoryOptions& o) {
  const parallel::ModelConfig& c = o.model->config;
  const auto rows = static_cast<size_t>(rows_of(o));
  size_t per_slot = padded(rows * static_cast<size_t>(c.width) * 4) + 2 * padded(rows * 4);
  size_t grads = 0;
  for (uint32_t l = o.place.layer_begin; l < o.place.layer_end; ++l) {
    const base::LayerId layer(l);
    for (const auto& a : parallel::layer_activations(*o.model, layer, o.batch, position_of(o, l))) {
      per_slot += static_cast<size_t>(a.buffer.bytes());
    }
    if (!o.splits_backward && l != first_block(o)) continue;
    for (const auto& g : parallel::layer_activation_grads(*o.model, layer, o.batch)) {
      grads += static_cast<size_t>(g.buffer.bytes()) * (o.splits_backward ? o.slots : 1);
    }
  }
  return per_slot * o.slots + grads + scratch_bytes(o);
}

size_t StageMemory::scratch_bytes(const StageMemoryOptions& o) {
  const parallel::ModelConfig& c = o.model->config;
  const auto rows = static_cast<size_t>(rows_of(o));
  const size_t element = kernels::size_bytes(compute_dtype(o));
  size_t scratch = padded(rows * static_cast<size_t>(c.width) * element) +
                   padded(rows * static_cast<size_t>(c.ffn_width) * element) +
                   padded(static_cast<size_t>(vector_width(c)) * 4) +
                   padded(head_workspace_bytes(o)) + padded(size_t{8} * o.micro_batches_max);
  if (c.family == parallel::Family::kLlama)
    scratch += padded(static_cast<size_t>(c.context * c.head_size()) * 4);
  return scratch;
}

StageMemory::StageMemory(const StageMemoryOptions& options, MemoryCarver& carver)
    : options_(options) {
  const parallel::ModelConfig& c = options.model->config;
  const int64_t rows = rows_of(options);
  const DType compute = compute_dtype(options);
  for (uint32_t slot = 0; slot < options.slots; ++slot) {
    for (uint32_t l = options.place.layer_begin; l < options.place.layer_end; ++l) {
      ActivationSet& set = activations_.emplace_back();
      const base::LayerId layer(l);
      for (const auto& a : parallel::layer_activations(*options.model, layer, options.batch,
                                                       position_of(options, l))) {
        set[a.activation] = carve(carver, a.buffer);
      }
    }
    Boundary& boundary = boundaries_.emplace_back();
    boundary.tokens = carver.vector(DType::kI32, rows);
    boundary.targets = carver.vector(DType::kI32, rows);
    boundary.residual = carver.matrix(DType::kF32, rows, c.width);
  }
  const uint32_t grad_slots = options.splits_backward ? options.slots : 1;
  for (uint32_t slot = 0; slot < grad_slots; ++slot) {
    for (uint32_t l = options.place.layer_begin; l < options.place.layer_end; ++l) {
      if (!options.splits_backward && l != first_block(options)) continue;
      ActivationGradSet& set = grads_.emplace_back();
      for (const auto& g :
           parallel::layer_activation_grads(*options.model, base::LayerId(l), options.batch)) {
        set[g.grad] = g.buffer.rows == 1 ? carver.vector(DType::kF32, g.buffer.cols)
                                         : carve(carver, g.buffer);
      }
    }
  }
  scratch_.narrow = carver.matrix(compute, rows, c.width);
  scratch_.wide = carver.matrix(compute, rows, c.ffn_width);
  scratch_.vector = carver.vector(DType::kF32, vector_width(c));
  if (c.family == parallel::Family::kLlama) {
    scratch_.rope_table = carver.matrix(DType::kF32, c.context, c.head_size());
  }
  scratch_.head_workspace = carver.take(head_workspace_bytes(options));
  losses_ = carver.vector(DType::kF64, options.micro_batches_max);
}

size_t StageMemory::at(uint32_t slot, uint32_t layer) const {
  CHECK(slot < options_.slots && layer >= options_.place.layer_begin &&
        layer < options_.place.layer_end);
  const uint32_t layers = options_.place.layer_end - options_.place.layer_begin;
  return size_t{slot} * layers + (layer - options_.place.layer_begin);
}

const ActivationSet& StageMemory::activations(uint32_t slot, uint32_t layer) const {
  return activations_[at(slot, layer)];
}

const ActivationGradSet& StageMemory::grads(uint32_t slot, uint32_t layer) const {
  return options_.splits_backward ? grads_[at(slot, layer)] : grads_.front();
}

const Tensor& StageMemory::output(uint32_t slot, uint32_t layer) const {
  if (layer + 1 < options_.place.layer_end) return activations(slot, layer + 1)[Activation::kInput];
  return activations(slot, layer)[Activation::kOutput];
}

const Tensor& StageMemory::stage_input(uint32_t slot) const {
  return activations(slot, options_.place.layer_begin)[Activation::kInput];
}

Tensor StageMemory::loss(uint32_t index) const {
  CHECK_LT(index, options_.micro_batches_max);
  return Tensor::vector(losses_.as<double>() + index, DType::kF64, 1);
}

}  // namespace perdure::runtime::engine
