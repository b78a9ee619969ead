#pragma once
// Layer: forward and backward of one entry of ModelSpec::layers, made of kernels::Ops. Holds no
// activations: those come with each call. The residual stream between layers is f32 whatever the
// compute type, so that cutting the model elsewhere, or sending it over a link, rounds nothing.

#include <memory>

#include "runtime/engine/grad_router.h"
#include "runtime/engine/stage_memory.h"

namespace perdure::runtime::engine {

// What all layers of a stage share. References outlive the layers.
struct LayerContext {
  kernels::Ops& ops;
  kernels::Stream& stream;
  const parallel::ModelSpec& model;
  ModelState& state;
  const GradRouter& router;
  const Scratch& scratch;
  parallel::BatchShape batch;
};

// One micro-batch in one layer.
struct LayerCall {
  const ActivationSet& activations;
  const Boundary& boundary;
  const kernels::Tensor& output;  // f32 [R, C]; absent for the head
  kernels::Tensor loss;           // f64 [1], head only
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual void forward(const LayerCall& call) = 0;
  // call.boundary.residual: gradient of the output on entry, of the input on return. Fills `grads`
  // with what backward_weight needs. The head ignores what is there on entry: it starts from the
  // loss, which it also writes, and it does its weight gradients here.
  virtual void backward_input(const LayerCall& call, const ActivationGradSet& grads) = 0;
  virtual void backward_weight(const LayerCall& call, const ActivationGradSet& grads) = 0;
  // Head only: the loss alone, after forward.
  virtual void loss_only(const LayerCall& call);
};

std::unique_ptr<Layer> make_layer(const LayerContext& context, base::LayerId layer);

// One maker per kind; make_layer picks.
std::unique_ptr<Layer> make_embedding_layer(const LayerContext& context, base::LayerId layer);
std::unique_ptr<Layer> make_block_layer(const LayerContext& context, base::LayerId layer);
std::unique_ptr<Layer> make_head_layer(const LayerContext& context, base::LayerId layer);

}  // namespace perdure::runtime::engine
