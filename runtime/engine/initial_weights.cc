#include "runtime/engine/initial_weights.h"

#include <algorithm>

#include "base/hash.h"
#include "base/random.h"

namespace perdure::runtime::engine {

void set_initial_weights(const parallel::TensorSpec& spec, uint64_t seed, size_t first,
                         std::span<float> values) {
  CHECK_LE(first + values.size(), static_cast<size_t>(spec.elements()));
  CHECK_EQ(first % 2, 0u) << "numbers are drawn in pairs";
  if (spec.init != parallel::Init::kNormal) {
    std::fill(values.begin(), values.end(), spec.init == parallel::Init::kOne ? 1.0f : 0.0f);
    return;
  }
  const uint64_t name = base::hash64(std::as_bytes(std::span(spec.name)), seed);
  const base::PhiloxKey key = base::philox_key(name);
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint64_t pair = (first + i) / 2;
    const base::NormalPair drawn = base::normal_pair(
        key, {static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), 0, 0});
    values[i] = static_cast<float>(drawn.first * spec.init_std);
    if (i + 1 < values.size()) values[i + 1] = static_cast<float>(drawn.second * spec.init_std);
  }
}

}  // namespace perdure::runtime::engine
