#include "parallel/activation_plan.h"

namespace perdure::parallel {
namespace {

// The sizes that buffers are made of, in the letters of the header.
struct Sizes {
  int64_t rows;
  int64_t width;
  int64_t qkv;
  int64_t ffn_in;
  int64_t ffn;
  int64_t attention_rows;  // B * H * context
  int64_t element_bytes;   // of T

  BufferSpec f32(int64_t cols) const { return {rows, cols, 4}; }
  BufferSpec compute(int64_t cols) const { return {rows, cols, element_bytes}; }
};

Sizes sizes_of(const ModelConfig& c, const BatchShape& batch) {
  CHECK_GT(batch.micro_batch, 0);
  return {.rows = batch.micro_batch * c.context,
          .width = c.width,
          .qkv = (c.heads + 2 * c.kv_heads) * c.head_size(),
          .ffn_in = c.family == Family::kGpt2 ? c.ffn_width : 2 * c.ffn_width,
          .ffn = c.ffn_width,
          .attention_rows = batch.micro_batch * c.heads * c.context,
          .element_bytes = batch.compute == ComputeType::kBF16 ? 2 : 4};
}

std::vector<ActivationSpec> block_activations(const Sizes& s, Family family) {
  std::vector<ActivationSpec> list;
  const bool mean = family == Family::kGpt2;
  list.push_back({Activation::kInput, s.f32(s.width)});
  if (mean) list.push_back({Activation::kNorm1Mean, s.f32(1)});
  list.push_back({Activation::kNorm1Rstd, s.f32(1)});
  list.push_back({Activation::kNorm1Out, s.compute(s.width)});
  list.push_back({Activation::kQkv, s.compute(s.qkv)});
  list.push_back({Activation::kAttentionLse, {s.attention_rows, 1, 4}});
  list.push_back({Activation::kAttentionOut, s.compute(s.width)});
  list.push_back({Activation::kMiddle, s.f32(s.width)});
  if (mean) list.push_back({Activation::kNorm2Mean, s.f32(1)});
  list.push_back({Activation::kNorm2Rstd, s.f32(1)});
  list.push_back({Activation::kNorm2Out, s.compute(s.width)});
  list.push_back({Activation::kFfnIn, s.compute(s.ffn_in)});
  list.push_back({Activation::kFfnAct, s.compute(s.ffn)});
  return list;
}

std::vector<ActivationSpec> head_activations(const Sizes& s, Family family) {
  std::vector<ActivationSpec> list;
  list.push_back({Activation::kInput, s.f32(s.width)});
  if (family == Family::kGpt2) list.push_back({Activation::kFinalMean, s.f32(1)});
  list.push_back({Activation::kFinalRstd, s.f32(1)});
  list.push_back({Activation::kFinalOut, s.compute(s.width)});
  return list;
}

}  // namespace

std::vector<ActivationSpec> layer_activations(const ModelSpec& model, base::LayerId layer,
                                              const BatchShape& batch, StagePosition position) {
  CHECK_LT(layer.value(), model.layers.size());
  const Sizes sizes = sizes_of(model.config, batch);
  const LayerKind kind = model.layers[layer.value()].kind;
  std::vector<ActivationSpec> list;
  if (kind == LayerKind::kBlock) list = block_activations(sizes, model.config.family);
  if (kind == LayerKind::kHead) list = head_activations(sizes, model.config.family);
  if (position == StagePosition::kLastOfStage && kind != LayerKind::kHead) {
    list.push_back({Activation::kOutput, sizes.f32(sizes.width)});
  }
  return list;
}

std::vector<ActivationGradSpec> layer_activation_grads(const ModelSpec& model, base::LayerId layer,
                                                       const BatchShape& batch) {
  CHECK_LT(layer.value(), model.layers.size());
  if (model.layers[layer.value()].kind != LayerKind::kBlock) return {};
  const Sizes s = sizes_of(model.config, batch);
  const bool beta = model.config.family == Family::kGpt2;
  const BufferSpec vector{1, s.width, 4};
  std::vector<ActivationGradSpec> list;
  list.push_back({ActivationGrad::kQkvGrad, s.compute(s.qkv)});
  list.push_back({ActivationGrad::kAttentionOutGrad, s.compute(s.width)});
  list.push_back({ActivationGrad::kFfnInGrad, s.compute(s.ffn_in)});
  list.push_back({ActivationGrad::kFfnOutGrad, s.compute(s.width)});
  list.push_back({ActivationGrad::kNorm1GammaGrad, vector});
  if (beta) list.push_back({ActivationGrad::kNorm1BetaGrad, vector});
  list.push_back({ActivationGrad::kNorm2GammaGrad, vector});
  if (beta) list.push_back({ActivationGrad::kNorm2BetaGrad, vector});
  return list;
}

}  // namespace perdure::parallel
