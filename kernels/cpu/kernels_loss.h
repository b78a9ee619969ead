#pragma once
// Softmax over one row of a chunk of the vocabulary. The row is read twice; the second time from
// cache.

#include "kernels/cpu/vec_math.h"

namespace perdure::kernels::cpu {

template <class V>
void softmax_update(const float* logits, int64_t n, float* max, float* sum) {
  auto most = V::set(*max);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    // Lanes outside the span count as the first logit, which takes part anyway.
    if constexpr (!requires { span.count; }) {
      most = V::max(most, V::load(logits + i, span));
    } else {
      for (int k = 0; k < span.count; ++k) most = V::max(most, V::set(logits[i + k]));
    }
  });
  const float largest = V::largest(most);
  const auto shift = V::set(largest);
  auto total = V::zero();
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto e = exp_of<V>(V::sub(V::load(logits + i, span), shift));
    total = V::add(total, V::keep(e, span));
  });
  // The first chunk meets sum 0 and max -infinity: the factor is then 0.
  float factor[64];
  V::store(factor, exp_of<V>(V::sub(V::set(*max), shift)), Full{});
  *sum = *sum * factor[0] + V::sum(total);
  *max = largest;
}

template <class V, class T>
void softmax_backward(const float* logits, int64_t n, float max, float factor, void* dlogits) {
  auto* out = static_cast<T*>(dlogits);
  const auto shift = V::set(max);
  const auto scale = V::set(factor);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto e = exp_of<V>(V::sub(V::load(logits + i, span), shift));
    V::store(out + i, V::mul(e, scale), span);
  });
}

}  // namespace perdure::kernels::cpu
