#pragma once
// Kernels that treat each element by itself, and sums over rows. All are bound by memory.

#include "kernels/cpu/vec_math.h"

namespace perdure::kernels::cpu {

template <class V, class From, class To>
void convert(const From* x, To* y, int64_t n) {
  for_lanes<V>(n, [&](int64_t i, auto span) { V::store(y + i, V::load(x + i, span), span); });
}

template <class V, class T>
void add(const void* x_data, float* y, int64_t n) {
  const auto* x = static_cast<const T*>(x_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    V::store(y + i, V::add(V::load(y + i, span), V::load(x + i, span)), span);
  });
}

template <class V, class T>
void embed(const void* a_data, const void* b_data, float* y, int64_t n) {
  const auto* a = static_cast<const T*>(a_data);
  const auto* b = static_cast<const T*>(b_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto first = V::load(a + i, span);
    V::store(y + i, b == nullptr ? first : V::add(first, V::load(b + i, span)), span);
  });
}

// gelu(x) = x / (1 + exp(-2 u)), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form without its
// cancellation.
inline constexpr float kGeluTwoRoot = 1.59576912f;     // 2 sqrt(2/pi)
inline constexpr float kGeluTwoCubic = 0.0713548163f;  // 2 sqrt(2/pi) * 0.044715

template <class V>
inline typename V::F gelu_gate(typename V::F x) {
  const auto x2 = V::mul(x, x);
  return logistic<V>(V::mul(x, V::fma(x2, V::set(kGeluTwoCubic), V::set(kGeluTwoRoot))));
}

template <class V, class T>
void gelu_forward(const void* x_data, void* y_data, int64_t n) {
  const auto* x = static_cast<const T*>(x_data);
  auto* y = static_cast<T*>(y_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto v = V::load(x + i, span);
    V::store(y + i, V::mul(v, gelu_gate<V>(v)), span);
  });
}

template <class V, class T>
void gelu_backward(const void* x_data, const void* dy_data, void* dx_data, int64_t n) {
  const auto* x = static_cast<const T*>(x_data);
  const auto* dy = static_cast<const T*>(dy_data);
  auto* dx = static_cast<T*>(dx_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto v = V::load(x + i, span);
    const auto s = gelu_gate<V>(v);
    const auto slope_u = V::fma(V::mul(v, v), V::set(3.0f * kGeluTwoCubic), V::set(kGeluTwoRoot));
    const auto bell = V::mul(s, V::sub(V::set(1.0f), s));  // 0 where the gate is 0 or 1
    const auto slope = V::fma(V::mul(v, bell), slope_u, s);
    V::store(dx + i, V::mul(V::load(dy + i, span), slope), span);
  });
}

template <class V, class T>
void swiglu_forward(const void* gate_data, const void* up_data, void* y_data, int64_t n) {
  const auto* gate = static_cast<const T*>(gate_data);
  const auto* up = static_cast<const T*>(up_data);
  auto* y = static_cast<T*>(y_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto g = V::load(gate + i, span);
    V::store(y + i, V::mul(V::mul(g, logistic<V>(g)), V::load(up + i, span)), span);
  });
}

template <class V, class T>
void swiglu_backward(const void* x_data, const void* dy_data, void* dx_data, int64_t n) {
  const auto* x = static_cast<const T*>(x_data);
  const auto* dy = static_cast<const T*>(dy_data);
  auto* dx = static_cast<T*>(dx_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    const auto g = V::load(x + i, span);
    const auto up = V::load(x + n + i, span);
    const auto d = V::load(dy + i, span);
    const auto s = logistic<V>(g);
    const auto slope = V::mul(s, V::fma(g, V::sub(V::set(1.0f), s), V::set(1.0f)));
    V::store(dx + i, V::mul(V::mul(d, up), slope), span);
    V::store(dx + n + i, V::mul(d, V::mul(g, s)), span);
  });
}

template <class V, class T>
void rope(void* x_data, const float* table, float sign, int64_t half) {
  auto* x = static_cast<T*>(x_data);
  const auto direction = V::set(sign);
  for_lanes<V>(half, [&](int64_t i, auto span) {
    const auto cosine = V::load(table + i, span);
    const auto sine = V::mul(V::load(table + half + i, span), direction);
    const auto first = V::load(x + i, span);
    const auto second = V::load(x + half + i, span);
    V::store(x + i, V::sub(V::mul(first, cosine), V::mul(second, sine)), span);
    V::store(x + half + i, V::fma(second, cosine, V::mul(first, sine)), span);
  });
}

template <class V, class T>
void epilogue(const float* tile, const float* bias, void* c_data, int64_t n, int add_c) {
  auto* c = static_cast<T*>(c_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    auto x = V::load(tile + i, span);
    if (bias != nullptr) x = V::add(x, V::load(bias + i, span));
    if (add_c != 0) x = V::add(x, V::load(c + i, span));
    V::store(c + i, x, span);
  });
}

// Four running sums, of rows 0, 4, 8, ..., of rows 1, 5, ..., then added as (0 + 1) + (2 + 3).
template <class V, class T>
void column_sum(const void* x_data, int64_t rows, int64_t stride, float* out, int64_t n) {
  const auto* x = static_cast<const T*>(x_data);
  for_lanes<V>(n, [&](int64_t i, auto span) {
    typename V::F sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      for (int k = 0; k < 4; ++k) sum[k] = V::add(sum[k], V::load(x + (r + k) * stride + i, span));
    }
    for (; r < rows; ++r) sum[r % 4] = V::add(sum[r % 4], V::load(x + r * stride + i, span));
    V::store(out + i, V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])), span);
  });
}

template <class V>
void exp_row(const float* x, float* y, int64_t n) {
  for_lanes<V>(
      n, [&](int64_t i, auto span) { V::store(y + i, exp_of<V>(V::load(x + i, span)), span); });
}

template <class V>
void log_row(const float* x, float* y, int64_t n) {
  for_lanes<V>(
      n, [&](int64_t i, auto span) { V::store(y + i, log_of<V>(V::load(x + i, span)), span); });
}

}  // namespace perdure::kernels::cpu
