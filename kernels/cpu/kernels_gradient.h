#pragma once
// Gradient sinks, their sum of squares, and AdamW.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cmath>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec_math.h"

namespace perdure::kernels::cpu {

// Beyond +-252 every product with a finite f32 is 0 or over any limit: the same as at the border.
inline constexpr int kExponentEdge = 252;

static inline int clamp_exponent(int exponent) {
  if (exponent > kExponentEdge) return kExponentEdge;
  return exponent < -kExponentEdge ? -kExponentEdge : exponent;
}

static inline float power_of_two_f32(int e) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(e + 127) << 23);
}
static inline double power_of_two_f64(int e) {
  return __builtin_bit_cast(double, static_cast<uint64_t>(e + 1023) << 52);
}

// The definition in gradient.h for one element, in double.
template <class V, class Q>
inline void sink_element(float g, Q* accumulator, double scale, int64_t limit, SinkFlags* flags) {
  if (!(std::fabs(g) <= 3.40282347e38f)) {
    flags->non_finite = true;
    return;
  }
  if (std::fabs(g) > flags->largest) flags->largest = std::fabs(g);
  const double scaled = std::nearbyint(static_cast<double>(g) * scale);
  if (!(std::fabs(scaled) <= 4611686018427387904.0)) {
    flags->overflow = true;
    return;
  }
  const auto q = static_cast<int64_t>(scaled);
  if (q > limit || q < -limit) {
    flags->overflow = true;
    return;
  }
  *accumulator = static_cast<Q>(*accumulator + q);
}

template <class V>
inline void merge_flags(const typename V::Fixed32& state, SinkFlags* flags) {
  const float largest = __builtin_bit_cast(float, V::fixed32_largest(state));
  if (largest > flags->largest) flags->largest = largest;
  flags->overflow = flags->overflow || V::fixed32_overflow(state);
  flags->non_finite = flags->non_finite || V::fixed32_non_finite(state);
}

template <class V>
void sink_fixed32(const float* g, int32_t* accumulator, int64_t n, int exponent, int32_t limit,
                  SinkFlags* flags) {
  const int e = clamp_exponent(exponent);
  int64_t i = 0;
  if constexpr (V::kHasWide) {
    auto state = V::fixed32_begin();
    if (e >= -126 && e <= 127) {
      const auto scale = V::set(power_of_two_f32(e));
      for (; i + V::kLanes <= n; i += V::kLanes) {
        const auto x = V::load(g + i, Full{});
        V::fixed32_step(x, V::mul(x, scale), accumulator + i, limit, &state);
      }
    } else {
      const auto first = V::set(power_of_two_f32(e / 2));
      const auto second = V::set(power_of_two_f32(e - e / 2));
      for (; i + V::kLanes <= n; i += V::kLanes) {
        const auto x = V::load(g + i, Full{});
        V::fixed32_step(x, V::mul(V::mul(x, first), second), accumulator + i, limit, &state);
      }
    }
    merge_flags<V>(state, flags);
  }
  const double scale = power_of_two_f64(e);
  for (; i < n; ++i) sink_element<V>(g[i], accumulator + i, scale, limit, flags);
}

template <class V>
void sink_fixed64(const float* g, int64_t* accumulator, int64_t n, int exponent, int64_t limit,
                  SinkFlags* flags) {
  const double scale = power_of_two_f64(clamp_exponent(exponent));
  int64_t i = 0;
  if constexpr (V::kHasFixed64) {
    const auto wide_scale = V::wide_set(scale);
    auto state = V::fixed32_begin();
    for (; i + V::kWideLanes <= n; i += V::kWideLanes) {
      V::fixed64_step(g + i, accumulator + i, wide_scale, limit, &state);
    }
    merge_flags<V>(state, flags);
  }
  for (; i < n; ++i) sink_element<V>(g[i], accumulator + i, scale, limit, flags);
}

template <class V, class Q>
void read_gradient(const Q* q, float* out, int64_t n, double factor) {
  int64_t i = 0;
  if constexpr (V::kHasWide) {
    const auto wide = V::wide_set(factor);
    for (; i + V::kWideLanes <= n; i += V::kWideLanes) {
      V::wide_store(out + i, V::wide_mul(V::wide_load(q + i), wide));
    }
  }
  for (; i < n; ++i) out[i] = static_cast<float>(static_cast<double>(q[i]) * factor);
}

template <class V, class Q>
double squares(const Q* q, int64_t n) {
  double sum = 0.0;
  int64_t i = 0;
  if constexpr (V::kHasWide) {
    auto first = V::wide_set(0.0);
    auto second = first;
    for (; i + 2 * V::kWideLanes <= n; i += 2 * V::kWideLanes) {
      const auto a = V::wide_load(q + i);
      const auto b = V::wide_load(q + i + V::kWideLanes);
      first = V::wide_fma(a, a, first);
      second = V::wide_fma(b, b, second);
    }
    sum = V::wide_sum(first) + V::wide_sum(second);
  }
  for (; i < n; ++i) sum += static_cast<double>(q[i]) * static_cast<double>(q[i]);
  return sum;
}

template <class V>
void adamw(const AdamwPiece& piece) {
  const auto beta1 = V::set(piece.beta1);
  const auto beta2 = V::set(piece.beta2);
  const auto rest1 = V::set(1.0f - piece.beta1);
  const auto rest2 = V::set(1.0f - piece.beta2);
  const auto inverse1 = V::set(1.0f / piece.correction1);
  const auto inverse2 = V::set(1.0f / piece.correction2);
  const auto epsilon = V::set(piece.epsilon);
  const auto decay = V::set(piece.decay);
  const auto minus_lr = V::set(-piece.lr);
  for_lanes<V>(piece.count, [&](int64_t i, auto span) {
    const auto g = V::load(piece.gradient + i, span);
    const auto m = V::fma(beta1, V::load(piece.m + i, span), V::mul(rest1, g));
    const auto v = V::fma(beta2, V::load(piece.v + i, span), V::mul(rest2, V::mul(g, g)));
    const auto p = V::load(piece.param + i, span);
    const auto root = V::add(V::sqrt(V::mul(v, inverse2)), epsilon);
    const auto update = V::fma(decay, p, V::div(V::mul(m, inverse1), root));
    const auto next = V::fma(minus_lr, update, p);
    V::store(piece.m + i, m, span);
    V::store(piece.v + i, v, span);
    V::store(piece.param + i, next, span);
    if (piece.param_low != nullptr) V::store(piece.param_low + i, next, span);
  });
}

template <class V>
uint64_t digest(const float* param, const float* m, const float* v, int64_t n) {
  const auto bytes = static_cast<size_t>(n) * sizeof(float);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, param, bytes);
  XXH3_64bits_update(&state, m, bytes);
  XXH3_64bits_update(&state, v, bytes);
  return XXH3_64bits_digest(&state);
}

}  // namespace perdure::kernels::cpu
