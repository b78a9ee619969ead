#include "runtime/engine/layer.h"

namespace perdure::runtime::engine {

void Layer::loss_only(const LayerCall&) { CHECK(false) << "only the head has a loss"; }

std::unique_ptr<Layer> make_layer(const LayerContext& context, base::LayerId layer) {
  switch (context.model.layers[layer.value()].kind) {
    case parallel::LayerKind::kEmbedding:
      return make_embedding_layer(context, layer);
    case parallel::LayerKind::kBlock:
      return make_block_layer(context, layer);
    case parallel::LayerKind::kHead:
      return make_head_layer(context, layer);
  }
  return nullptr;
}

}  // namespace perdure::runtime::engine
