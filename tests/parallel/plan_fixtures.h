#pragma once
// Small models and layouts that the tests of parallel/ share.

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "parallel/layer_cost.h"
#include "parallel/layout.h"
#include "parallel/model_spec.h"
#include "tests/testing/matchers.h"

namespace perdure::testing {

inline parallel::ModelConfig small_config(parallel::Family family) {
  parallel::ModelConfig config;
  config.family = family;
  config.layers = 6;
  config.width = 32;
  config.heads = 4;
  config.kv_heads = family == parallel::Family::kGpt2 ? 4 : 2;
  config.vocabulary = 64;
  config.context = 16;
  return config;
}

inline parallel::ModelSpec small_model(
    parallel::Family family = parallel::Family::kGpt2,
    parallel::Embeddings embeddings = parallel::Embeddings::kTied) {
  parallel::ModelConfig config = small_config(family);
  config.embeddings = embeddings;
  return parallel::make_model_spec(config).value();
}

struct GridOptions {
  uint32_t pipelines = 1;
  uint32_t stages = 1;
  uint32_t micro_batches = 1;
};

inline parallel::Layout grid(const parallel::ModelSpec& model, const GridOptions& o) {
  return parallel::make_layout(
             model,
             {.pipelines = o.pipelines, .stages = o.stages, .micro_batches = o.micro_batches},
             parallel::relative_layer_costs(model))
      .value();
}

// Pipelines of 3, 2 and 1 stages that share the model of 8 layers and 9 micro-batches unevenly.
inline parallel::Layout unequal_layout() {
  using base::Rank;
  parallel::Layout layout;
  layout.micro_batches = 9;
  layout.pipelines = {{{{Rank(0), 0, 2}, {Rank(1), 2, 6}, {Rank(2), 6, 8}}, 0, 4},
                      {{{Rank(3), 0, 5}, {Rank(4), 5, 8}}, 4, 7},
                      {{{Rank(5), 0, 8}}, 7, 9}};
  return layout;
}

// Uniform integers below n as most tests want them.
inline uint32_t below(base::SeededRandom& random, uint64_t n) {
  return static_cast<uint32_t>(random.uniform_int(n));
}

}  // namespace perdure::testing
