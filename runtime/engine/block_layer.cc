// A transformer block, pre-norm, GPT-2 or Llama:
//
//   middle = input  + Attention(norm1(input)) W_o
//   output = middle + F(norm2(middle) W_in) W_out         F = gelu, or silu(gate) * up
//
// Backward walks the same line from the right; `residual` is the gradient of output, then of
// middle, then of input.

#include <cmath>

#include "runtime/engine/layer.h"

namespace perdure::runtime::engine {
namespace {

using kernels::Accumulate;
using kernels::Tensor;
using kernels::Transpose;
using parallel::Activation;
using parallel::ActivationGrad;
using parallel::Role;

class BlockLayer : public Layer {
 public:
  BlockLayer(const LayerContext& context, base::LayerId layer)
      : c_(context), layer_(layer), gpt2_(context.model.config.family == parallel::Family::kGpt2) {}

  void forward(const LayerCall& call) override {
    const ActivationSet& a = call.activations;
    norm_forward(norm1(a));
    linear(a[Activation::kNorm1Out], Role::kQkvWeight, Role::kQkvBias, a[Activation::kQkv]);
    rotate(a[Activation::kQkv], kernels::RopeDirection::kForward);
    c_.ops.attention_forward(c_.stream, attention(a));
    c_.ops.copy(c_.stream, a[Activation::kInput], a[Activation::kMiddle]);
    linear(a[Activation::kAttentionOut], Role::kAttentionOutWeight, Role::kAttentionOutBias,
           a[Activation::kMiddle], Accumulate::kAdd);
    norm_forward(norm2(a));
    linear(a[Activation::kNorm2Out], Role::kFfnInWeight, Role::kFfnInBias, a[Activation::kFfnIn]);
    if (gpt2_) {
      c_.ops.gelu_forward(c_.stream, a[Activation::kFfnIn], a[Activation::kFfnAct]);
    } else {
      c_.ops.swiglu_forward(c_.stream, a[Activation::kFfnIn], a[Activation::kFfnAct]);
    }
    c_.ops.copy(c_.stream, a[Activation::kMiddle], call.output);
    linear(a[Activation::kFfnAct], Role::kFfnOutWeight, Role::kFfnOutBias, call.output,
           Accumulate::kAdd);
  }

  void backward_input(const LayerCall& call, const ActivationGradSet& g) override {
    const ActivationSet& a = call.activations;
    const Tensor& residual = call.boundary.residual;
    // Feed-forward half.
    c_.ops.copy(c_.stream, residual, g[ActivationGrad::kFfnOutGrad]);
    linear_input_grad(g[ActivationGrad::kFfnOutGrad], Role::kFfnOutWeight, c_.scratch.wide);
    if (gpt2_) {
      c_.ops.gelu_backward(c_.stream, a[Activation::kFfnIn], c_.scratch.wide,
                           g[ActivationGrad::kFfnInGrad]);
    } else {
      c_.ops.swiglu_backward(c_.stream, a[Activation::kFfnIn], c_.scratch.wide,
                             g[ActivationGrad::kFfnInGrad]);
    }
    linear_input_grad(g[ActivationGrad::kFfnInGrad], Role::kFfnInWeight, c_.scratch.narrow);
    norm_backward({.forward = norm2(a),
                   .dy = c_.scratch.narrow,
                   .dx = residual,
                   .dgamma = g[ActivationGrad::kNorm2GammaGrad],
                   .dbeta = g[ActivationGrad::kNorm2BetaGrad]});
    // Attention half.
    c_.ops.copy(c_.stream, residual, g[ActivationGrad::kAttentionOutGrad]);
    linear_input_grad(g[ActivationGrad::kAttentionOutGrad], Role::kAttentionOutWeight,
                      c_.scratch.narrow);
    const Tensor& dqkv = g[ActivationGrad::kQkvGrad];
    c_.ops.attention_backward(c_.stream, {.forward = attention(a),
                                          .dout = heads(c_.scratch.narrow, 0, config().heads),
                                          .dq = queries(dqkv),
                                          .dk = keys(dqkv),
                                          .dv = values(dqkv)});
    rotate(dqkv, kernels::RopeDirection::kInverse);
    linear_input_grad(dqkv, Role::kQkvWeight, c_.scratch.narrow);
    norm_backward({.forward = norm1(a),
                   .dy = c_.scratch.narrow,
                   .dx = residual,
                   .dgamma = g[ActivationGrad::kNorm1GammaGrad],
                   .dbeta = g[ActivationGrad::kNorm1BetaGrad]});
  }

  void backward_weight(const LayerCall& call, const ActivationGradSet& g) override {
    const ActivationSet& a = call.activations;
    weight_grad(g[ActivationGrad::kFfnOutGrad], a[Activation::kFfnAct], Role::kFfnOutWeight,
                Role::kFfnOutBias);
    weight_grad(g[ActivationGrad::kFfnInGrad], a[Activation::kNorm2Out], Role::kFfnInWeight,
                Role::kFfnInBias);
    weight_grad(g[ActivationGrad::kAttentionOutGrad], a[Activation::kAttentionOut],
                Role::kAttentionOutWeight, Role::kAttentionOutBias);
    weight_grad(g[ActivationGrad::kQkvGrad], a[Activation::kNorm1Out], Role::kQkvWeight,
                Role::kQkvBias);
    vector_grad(g[ActivationGrad::kNorm1GammaGrad], Role::kNorm1Gamma);
    vector_grad(g[ActivationGrad::kNorm2GammaGrad], Role::kNorm2Gamma);
    if (!gpt2_) return;
    vector_grad(g[ActivationGrad::kNorm1BetaGrad], Role::kNorm1Beta);
    vector_grad(g[ActivationGrad::kNorm2BetaGrad], Role::kNorm2Beta);
  }

 private:
  const parallel::ModelConfig& config() const { return c_.model.config; }
  const HeldTensor& held(Role role) const { return c_.state.held(c_.model.find(layer_, role)); }

  Tensor heads(const Tensor& x, int64_t first_head, int64_t count) const {
    const int64_t size = config().head_size();
    return x.columns(first_head * size, count * size)
        .as_heads(c_.batch.micro_batch, config().context, count, size);
  }
  Tensor queries(const Tensor& qkv) const { return heads(qkv, 0, config().heads); }
  Tensor keys(const Tensor& qkv) const { return heads(qkv, config().heads, config().kv_heads); }
  Tensor values(const Tensor& qkv) const {
    return heads(qkv, config().heads + config().kv_heads, config().kv_heads);
  }

  kernels::AttentionArgs attention(const ActivationSet& a) const {
    const Tensor& qkv = a[Activation::kQkv];
    const Tensor lse = Tensor::dense(a[Activation::kAttentionLse].data(), kernels::DType::kF32,
                                     {c_.batch.micro_batch, config().heads, config().context});
    return {.q = queries(qkv),
            .k = keys(qkv),
            .v = values(qkv),
            .out = heads(a[Activation::kAttentionOut], 0, config().heads),
            .lse = lse,
            .scale = 1.0f / std::sqrt(static_cast<float>(config().head_size()))};
  }

  void rotate(const Tensor& qkv, kernels::RopeDirection direction) {
    if (gpt2_) return;
    c_.ops.rope(c_.stream, queries(qkv), c_.scratch.rope_table, direction);
    c_.ops.rope(c_.stream, keys(qkv), c_.scratch.rope_table, direction);
  }

  kernels::NormArgs norm1(const ActivationSet& a) const {
    return norm(a[Activation::kInput], Role::kNorm1Gamma, Role::kNorm1Beta,
                a[Activation::kNorm1Out], a[Activation::kNorm1Mean], a[Activation::kNorm1Rstd]);
  }
  kernels::NormArgs norm2(const ActivationSet& a) const {
    return norm(a[Activation::kMiddle], Role::kNorm2Gamma, Role::kNorm2Beta,
                a[Activation::kNorm2Out], a[Activation::kNorm2Mean], a[Activation::kNorm2Rstd]);
  }
  kernels::NormArgs norm(const Tensor& x, Role gamma, Role beta, const Tensor& y,
                         const Tensor& mean, const Tensor& rstd) const {
    kernels::NormArgs args{.x = x,
                           .gamma = held(gamma).vector(),
                           .y = y,
                           .mean = mean,
                           .rstd = rstd,
                           .epsilon = static_cast<float>(config().norm_epsilon)};
    if (gpt2_) args.beta = held(beta).vector();
    return args;
  }
  void norm_forward(const kernels::NormArgs& args) {
    if (gpt2_) {
      c_.ops.layer_norm_forward(c_.stream, args);
    } else {
      c_.ops.rms_norm_forward(c_.stream, args);
    }
  }
  void norm_backward(const kernels::NormGradArgs& args) {
    if (gpt2_) {
      c_.ops.layer_norm_backward(c_.stream, args);
    } else {
      c_.ops.rms_norm_backward(c_.stream, args);
    }
  }

  // y (+)= x W^T + bias, W stored [out, in].
  void linear(const Tensor& x, Role weight, Role bias, const Tensor& y,
              Accumulate accumulate = Accumulate::kOverwrite) {
    kernels::MatmulArgs args{.a = x, .b = held(weight).matrix(), .c = y};
    if (gpt2_) args.bias = held(bias).vector();
    args.transpose_b = Transpose::kYes;
    args.accumulate = accumulate;
    c_.ops.matmul(c_.stream, args);
  }
  // dx = dy W.
  void linear_input_grad(const Tensor& dy, Role weight, const Tensor& dx) {
    c_.ops.matmul(c_.stream, {.a = dy, .b = held(weight).matrix(), .c = dx});
  }
  void weight_grad(const Tensor& dy, const Tensor& x, Role weight, Role bias) {
    c_.ops.weight_gradient(c_.stream, dy, x, c_.router.sink(layer_, weight));
    if (!gpt2_) return;
    const Tensor sum = Tensor::vector(c_.scratch.vector.data(), kernels::DType::kF32, dy.shape(1));
    c_.ops.column_sum(c_.stream, dy, sum);
    c_.ops.accumulate_gradient(c_.stream, sum, c_.router.sink(layer_, bias));
  }
  void vector_grad(const Tensor& g, Role role) {
    c_.ops.accumulate_gradient(c_.stream, g, c_.router.sink(layer_, role));
  }

  const LayerContext c_;
  const base::LayerId layer_;
  const bool gpt2_;
};

}  // namespace

std::unique_ptr<Layer> make_block_layer(const LayerContext& context, base::LayerId layer) {
  return std::make_unique<BlockLayer>(context, layer);
}

}  // namespace perdure::runtime::engine
