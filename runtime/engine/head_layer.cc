// The head: final norm, projection on the vocabulary, cross-entropy. Its backward starts the
// backward of the micro-batch. Gradients are those of the mean loss per token of one micro-batch;
// the division by the number of micro-batches is done once, in the optimizer.

#include "kernels/linear_cross_entropy.h"
#include "runtime/engine/layer.h"

namespace perdure::runtime::engine {
namespace {

using kernels::Tensor;
using parallel::Activation;
using parallel::Role;

class HeadLayer : public Layer {
 public:
  HeadLayer(const LayerContext& context, base::LayerId layer)
      : c_(context),
        layer_(layer),
        layer_norm_(context.model.config.family == parallel::Family::kGpt2) {}

  void forward(const LayerCall& call) override {
    const kernels::NormArgs args = norm(call);
    if (layer_norm_) {
      c_.ops.layer_norm_forward(c_.stream, args);
    } else {
      c_.ops.rms_norm_forward(c_.stream, args);
    }
  }

  void loss_only(const LayerCall& call) override {
    kernels::linear_cross_entropy_forward(c_.ops, c_.stream, loss_args(call));
  }

  void backward_input(const LayerCall& call, const ActivationGradSet&) override {
    kernels::LinearCrossEntropyArgs args = loss_args(call);
    args.scale = 1.0f / static_cast<float>(call.boundary.targets.shape(0));
    args.dhidden = c_.scratch.narrow;
    args.weight_gradient = c_.router.sink(layer_, Role::kHeadWeight);
    kernels::linear_cross_entropy(c_.ops, c_.stream, args);

    c_.ops.fill_zero(c_.stream, call.boundary.residual);
    kernels::NormGradArgs grad{
        .forward = norm(call), .dy = c_.scratch.narrow, .dx = call.boundary.residual};
    const int64_t width = c_.model.config.width;
    const Tensor& spare = c_.scratch.vector;  // at least 2 C wide
    grad.dgamma = Tensor::vector(spare.data(), kernels::DType::kF32, width);
    if (!layer_norm_) {
      c_.ops.rms_norm_backward(c_.stream, grad);
      c_.ops.accumulate_gradient(c_.stream, grad.dgamma, c_.router.sink(layer_, Role::kFinalGamma));
      return;
    }
    grad.dbeta = Tensor::vector(spare.as<float>() + width, kernels::DType::kF32, width);
    c_.ops.layer_norm_backward(c_.stream, grad);
    c_.ops.accumulate_gradient(c_.stream, grad.dgamma, c_.router.sink(layer_, Role::kFinalGamma));
    c_.ops.accumulate_gradient(c_.stream, grad.dbeta, c_.router.sink(layer_, Role::kFinalBeta));
  }

  void backward_weight(const LayerCall&, const ActivationGradSet&) override {}

 private:
  kernels::NormArgs norm(const LayerCall& call) const {
    const ActivationSet& a = call.activations;
    kernels::NormArgs args{
        .x = a[Activation::kInput],
        .gamma = c_.state.held(c_.model.find(layer_, Role::kFinalGamma)).vector(),
        .y = a[Activation::kFinalOut],
        .mean = a[Activation::kFinalMean],
        .rstd = a[Activation::kFinalRstd],
        .epsilon = static_cast<float>(c_.model.config.norm_epsilon)};
    if (layer_norm_) args.beta = c_.state.held(c_.model.find(layer_, Role::kFinalBeta)).vector();
    return args;
  }

  kernels::LinearCrossEntropyArgs loss_args(const LayerCall& call) const {
    return {.hidden = call.activations[Activation::kFinalOut],
            .weight = c_.state.held(c_.model.find(layer_, Role::kHeadWeight)).matrix(),
            .targets = call.boundary.targets,
            .loss = call.loss,
            .workspace = c_.scratch.head_workspace};
  }

  const LayerContext c_;
  const base::LayerId layer_;
  const bool layer_norm_;
};

}  // namespace

std::unique_ptr<Layer> make_head_layer(const LayerContext& context, base::LayerId layer) {
  return std::make_unique<HeadLayer>(context, layer);
}

}  // namespace perdure::runtime::engine
