#pragma once
// Initial weights: each element is a function of the job's seed, the tensor's name and the
// element's index, so it does not matter which rank makes it.

#include <cstdint>
#include <span>

#include "parallel/model_spec.h"

namespace perdure::runtime::engine {

// Elements [first, first + values.size()) of the tensor; `first` is even.
void set_initial_weights(const parallel::TensorSpec& spec, uint64_t seed, size_t first,
                         std::span<float> values);

}  // namespace perdure::runtime::engine
