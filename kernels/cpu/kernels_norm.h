#pragma once
// LayerNorm and RMSNorm, forward and backward, on a piece of rows. A row is read from memory once
// and then from the nearest cache. Formulas: kernels/reference/norm.cc.

#include <cmath>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec_math.h"

namespace perdure::kernels::cpu {

template <class V, class T>
void norm_forward(const NormPiece& piece) {
  const auto cols = static_cast<float>(piece.cols);
  for (int64_t r = 0; r < piece.rows; ++r) {
    const float* x = piece.x + r * piece.x_stride;
    auto* y = static_cast<T*>(piece.y) + r * piece.y_stride;
    float mean = 0.0f;
    if (piece.mean != nullptr) {
      auto sum = V::zero();
      for_lanes<V>(piece.cols,
                   [&](int64_t i, auto span) { sum = V::add(sum, V::load(x + i, span)); });
      mean = V::sum(sum) / cols;
      piece.mean[r] = mean;
    }
    const auto shift = V::set(mean);
    auto squares = V::zero();
    for_lanes<V>(piece.cols, [&](int64_t i, auto span) {
      const auto d = V::keep(V::sub(V::load(x + i, span), shift), span);
      squares = V::fma(d, d, squares);
    });
    const float rstd = 1.0f / std::sqrt(V::sum(squares) / cols + piece.epsilon);
    piece.rstd[r] = rstd;
    const auto factor = V::set(rstd);
    for_lanes<V>(piece.cols, [&](int64_t i, auto span) {
      const auto n = V::mul(V::sub(V::load(x + i, span), shift), factor);
      const auto scaled = V::mul(n, V::load(piece.gamma + i, span));
      V::store(y + i,
               piece.beta == nullptr ? scaled : V::add(scaled, V::load(piece.beta + i, span)),
               span);
    });
  }
}

// dgamma and dbeta of the piece are running sums over its rows; dbeta may be null.
template <class V, class T>
void norm_backward(const NormPiece& piece) {
  const float inverse_cols = 1.0f / static_cast<float>(piece.cols);
  for (int64_t r = 0; r < piece.rows; ++r) {
    const float* x = piece.x + r * piece.x_stride;
    const auto* dy = static_cast<const T*>(piece.y) + r * piece.y_stride;
    float* dx = piece.dx + r * piece.dx_stride;
    const auto shift = V::set(piece.mean == nullptr ? 0.0f : piece.mean[r]);
    const auto factor = V::set(piece.rstd[r]);
    auto sum_g = V::zero();
    auto sum_gn = V::zero();
    for_lanes<V>(piece.cols, [&](int64_t i, auto span) {
      const auto n = V::mul(V::sub(V::load(x + i, span), shift), factor);
      const auto d = V::load(dy + i, span);
      const auto g = V::mul(d, V::load(piece.gamma + i, span));  // 0 outside the span
      sum_g = V::add(sum_g, g);
      sum_gn = V::add(sum_gn, V::keep(V::mul(g, n), span));
      const auto dn = V::mul(d, n);
      V::store(piece.dgamma + i, r == 0 ? dn : V::add(V::load(piece.dgamma + i, span), dn), span);
      if (piece.dbeta != nullptr) {
        V::store(piece.dbeta + i, r == 0 ? d : V::add(V::load(piece.dbeta + i, span), d), span);
      }
    });
    const auto average_g = V::set(piece.mean == nullptr ? 0.0f : V::sum(sum_g) * inverse_cols);
    const auto average_gn = V::set(V::sum(sum_gn) * inverse_cols);
    for_lanes<V>(piece.cols, [&](int64_t i, auto span) {
      const auto n = V::mul(V::sub(V::load(x + i, span), shift), factor);
      const auto g = V::mul(V::load(dy + i, span), V::load(piece.gamma + i, span));
      const auto rest = V::sub(V::sub(g, average_g), V::mul(n, average_gn));
      V::store(dx + i, V::fma(rest, factor, V::load(dx + i, span)), span);
    });
  }
}

}  // namespace perdure::kernels::cpu
