#include "parallel/layer_cost.h"

namespace perdure::parallel {
namespace {

// One matrix product of a layer: y[rows, out] = x[rows, in] W^T.
struct Linear {
  double rows;
  double in;
  double out;
};

void add_linear(LayerCost& cost, const Linear& linear) {
  const double flops = 2.0 * linear.rows * linear.in * linear.out;
  cost.forward_flops += flops;
  cost.backward_input_flops += flops;
  cost.backward_weight_flops += flops;
}

// Element-wise work; its backward reads one operand more and writes as much.
void add_elements(LayerCost& cost, double elements) {
  cost.forward_flops += kElementFlops * elements;
  cost.backward_input_flops += 2.0 * kElementFlops * elements;
}

// Causal: half of the score matrix. Backward has five products where forward has two.
void add_attention(LayerCost& cost, const ModelConfig& c, double rows) {
  const double one_product = rows * static_cast<double>(c.context * c.width);
  cost.forward_flops += 2.0 * one_product;
  cost.backward_input_flops += 5.0 * one_product;
}

void add_block(LayerCost& cost, const ModelConfig& c, double rows) {
  const double width = static_cast<double>(c.width);
  const double ffn = static_cast<double>(c.ffn_width);
  const double ffn_in = c.family == Family::kGpt2 ? ffn : 2.0 * ffn;
  const double qkv = static_cast<double>((c.heads + 2 * c.kv_heads) * c.head_size());
  add_linear(cost, {.rows = rows, .in = width, .out = qkv});
  add_linear(cost, {.rows = rows, .in = width, .out = width});
  add_linear(cost, {.rows = rows, .in = width, .out = ffn_in});
  add_linear(cost, {.rows = rows, .in = ffn, .out = width});
  add_attention(cost, c, rows);
  // two norms, two residuals, rotary, gate
  add_elements(cost, rows * (4.0 * width + qkv + ffn_in));
}

// The logits are computed again in backward: keeping [R, V] would cost more memory than the whole
// stack.
void add_head(LayerCost& cost, const ModelConfig& c, double rows) {
  const double width = static_cast<double>(c.width);
  const double vocabulary = static_cast<double>(c.vocabulary);
  add_linear(cost, {.rows = rows, .in = width, .out = vocabulary});
  cost.backward_input_flops += 2.0 * rows * width * vocabulary;
  add_elements(cost, rows * (width + vocabulary));
}

}  // namespace

LayerCost layer_cost(const ModelSpec& model, base::LayerId layer, const BatchShape& batch) {
  CHECK_LT(layer.value(), model.layers.size());
  const LayerSpec& spec = model.layers[layer.value()];
  const ModelConfig& c = model.config;
  const double rows = static_cast<double>(batch.micro_batch * c.context);
  LayerCost cost;
  for (const TensorUseInLayer& use : spec.tensors) {
    cost.parameters += model.tensor(use.tensor).elements();
  }
  for (const ActivationSpec& activation :
       layer_activations(model, layer, batch, StagePosition::kInner)) {
    cost.stash_bytes += activation.buffer.bytes();
  }
  switch (spec.kind) {
    case LayerKind::kEmbedding:
      cost.forward_flops += kElementFlops * rows * static_cast<double>(c.width);
      cost.backward_weight_flops += 2.0 * kElementFlops * rows * static_cast<double>(c.width);
      break;
    case LayerKind::kBlock:
      add_block(cost, c, rows);
      break;
    case LayerKind::kHead:
      add_head(cost, c, rows);
      break;
  }
  if (spec.kind != LayerKind::kHead) {
    cost.boundary_bytes = BufferSpec{batch.micro_batch * c.context, c.width, 4}.bytes();
  }
  return cost;
}

std::vector<LayerCost> layer_costs(const ModelSpec& model, const BatchShape& batch) {
  std::vector<LayerCost> costs;
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    costs.push_back(layer_cost(model, base::LayerId(l), batch));
  }
  return costs;
}

std::vector<double> relative_layer_costs(const ModelSpec& model) {
  std::vector<double> flops;
  double sum = 0.0;
  for (const LayerCost& cost : layer_costs(model, BatchShape{})) {
    flops.push_back(cost.flops());
    sum += cost.flops();
  }
  CHECK_GT(sum, 0.0);
  for (double& f : flops) f /= sum;
  return flops;
}

}  // namespace perdure::parallel
