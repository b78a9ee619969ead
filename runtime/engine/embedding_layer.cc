// The embedding: token table (and position table). It reads the f32 parameters in every compute
// type: a look-up gains nothing from bf16.

#include "runtime/engine/layer.h"

namespace perdure::runtime::engine {
namespace {

using kernels::Tensor;
using parallel::Role;

class EmbeddingLayer : public Layer {
 public:
  EmbeddingLayer(const LayerContext& context, base::LayerId layer) : c_(context), layer_(layer) {
    tokens_ = table(Role::kTokenTable);
    if (c_.model.has(layer, Role::kPositionTable)) positions_ = table(Role::kPositionTable);
  }

  void forward(const LayerCall& call) override {
    c_.ops.embedding_forward(c_.stream, call.boundary.tokens, tokens_, positions_,
                             c_.model.config.context, call.output);
  }

  void backward_input(const LayerCall&, const ActivationGradSet&) override {}

  // The residual gradient stays in its buffer until the slot is used again, so split schedules find
  // it too.
  void backward_weight(const LayerCall& call, const ActivationGradSet&) override {
    const Tensor& dy = call.boundary.residual;
    c_.ops.embedding_backward(c_.stream, call.boundary.tokens, dy,
                              c_.router.sink(layer_, Role::kTokenTable));
    if (positions_.is_absent()) return;
    c_.ops.position_backward(c_.stream, dy, c_.model.config.context,
                             c_.router.sink(layer_, Role::kPositionTable));
  }

 private:
  Tensor table(Role role) const {
    const HeldTensor& t = c_.state.held(c_.model.find(layer_, role));
    return Tensor::matrix(t.param.data(), t.param.dtype(), t.spec->shape[0], t.spec->shape[1]);
  }

  const LayerContext c_;
  const base::LayerId layer_;
  Tensor tokens_;
  Tensor positions_;
};

}  // namespace

std::unique_ptr<Layer> make_embedding_layer(const LayerContext& context, base::LayerId layer) {
  return std::make_unique<EmbeddingLayer>(context, layer);
}

}  // namespace perdure::runtime::engine
