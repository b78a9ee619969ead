#include "runtime/engine/numerics.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace perdure::runtime::engine {
namespace {

constexpr int kExponentMin = -100;
constexpr int kExponentMax = 100;

float largest(std::span<const float> values) {
  float result = 0.0f;
  for (const float v : values) result = std::max(result, v);
  return result;
}

void apply_tracked(const ScaleSpans& scale, int64_t limit, int headroom) {
  const float floor = std::ldexp(largest(scale.tracked), -kQuietBits);
  for (size_t b = 0; b < scale.tracked.size(); ++b) {
    scale.exponents[b] = exponent_for(std::max(scale.tracked[b], floor), limit, headroom);
  }
}

}  // namespace

kernels::GradKind Numerics::grad_kind() const {
  if (mode == SumMode::kFast) return kernels::GradKind::kFloat;
  return width_bits == 32 ? kernels::GradKind::kFixed32 : kernels::GradKind::kFixed64;
}

int64_t Numerics::accumulator_bytes() const {
  return grad_kind() == kernels::GradKind::kFixed64 ? 8 : 4;
}

int headroom_bits(uint32_t width_bits) { return width_bits == 32 ? 3 : 16; }

int64_t addend_limit(uint32_t width_bits, uint32_t addends) {
  CHECK(width_bits == 32 || width_bits == 64);
  CHECK_GT(addends, 0u);
  if (width_bits == 32) return INT32_MAX / addends;
  return std::min(INT64_MAX / addends, int64_t{1} << 62);  // what kernels round to from double
}

int16_t exponent_for(float abs_max, int64_t limit, int headroom) {
  CHECK(std::isfinite(abs_max) && abs_max >= 0.0f);
  CHECK_GT(limit, 0);
  if (abs_max == 0.0f) return kExponentMax;
  int magnitude = 0;  // abs_max < 2^magnitude
  std::frexp(abs_max, &magnitude);
  const int room = std::bit_width(static_cast<uint64_t>(limit)) - 1;
  return static_cast<int16_t>(std::clamp(room - headroom - magnitude, kExponentMin, kExponentMax));
}

void advance_scale(const ScaleSpans& scale, int64_t limit, int headroom) {
  for (size_t b = 0; b < scale.tracked.size(); ++b) {
    scale.tracked[b] = std::max(scale.abs_max[b], scale.tracked[b] * 0.5f);
  }
  apply_tracked(scale, limit, headroom);
}

void recalibrate_scale(const ScaleSpans& scale, int64_t limit, int headroom) {
  std::copy(scale.abs_max.begin(), scale.abs_max.end(), scale.tracked.begin());
  apply_tracked(scale, limit, headroom);
}

}  // namespace perdure::runtime::engine
