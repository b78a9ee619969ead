#pragma once
// What a layer costs for one micro-batch: arithmetic, memory, and the bytes that cross its border.
// Predictions for planning; the engine's measured times replace them where there are any.

#include <cstdint>
#include <vector>

#include "parallel/activation_plan.h"
#include "parallel/model_spec.h"

namespace perdure::parallel {

// FLOPs count a multiplication and an addition as two. Element-wise work (norms, activation
// functions, softmax, residuals) is bound by memory; it is counted as kElementFlops per element it
// touches.
struct LayerCost {
  double forward_flops = 0.0;
  double backward_input_flops = 0.0;
  double backward_weight_flops = 0.0;
  int64_t parameters = 0;      // tensors of the layer; a tied tensor counts in each of its layers
  int64_t stash_bytes = 0;     // activations kept from forward to backward
  int64_t boundary_bytes = 0;  // activations (and their gradients) between this layer and the next

  double backward_flops() const { return backward_input_flops + backward_weight_flops; }
  double flops() const { return forward_flops + backward_flops(); }
};
inline constexpr double kElementFlops = 16.0;

LayerCost layer_cost(const ModelSpec& model, base::LayerId layer, const BatchShape& batch);
std::vector<LayerCost> layer_costs(const ModelSpec& model, const BatchShape& batch);

// Cost of each layer as a part of the whole model (they sum to 1): what make_layout cuts by.
std::vector<double> relative_layer_costs(const ModelSpec& model);

}  // namespace perdure::parallel
