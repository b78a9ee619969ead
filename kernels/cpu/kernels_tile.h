#pragma once
// Small f32 matrix products inside attention tiles, and packing of tiles. All operands lie in
// scratch whose columns are padded to whole registers with zeros, so there are no partial lanes.

#include "kernels/cpu/vec.h"

namespace perdure::kernels::cpu {

// c[m, n] (+)= a[m, k] b[k, n]. Element (i, p) of a lies at a[i * a_row + p * a_col]; rows of b and
// c are b_row and c_row apart. n is a multiple of V::kLanes. Sums run over ascending p.
struct TileProduct {
  int64_t m, n, k;
  const float* a;
  int64_t a_row, a_col;
  const float* b;
  int64_t b_row;
  float* c;
  int64_t c_row;
  int add;  // 0: overwrite
};

// Rows x Vectors registers of c stay in place while p runs.
template <class V, int Rows, int Vectors>
void tile_registers(const TileProduct& t, int64_t row, int64_t col) {
  constexpr int64_t kLanes = V::kLanes;
  typename V::F sum[Rows][Vectors];
  float* c = t.c + row * t.c_row + col;
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      sum[i][j] = t.add != 0 ? V::load(c + i * t.c_row + j * kLanes, Full{}) : V::zero();
    }
  }
  const float* a = t.a + row * t.a_row;
  const float* b = t.b + col;
  for (int64_t p = 0; p < t.k; ++p) {
    typename V::F line[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) line[j] = V::load(b + j * kLanes, Full{});
#pragma GCC unroll 8
    for (int i = 0; i < Rows; ++i) {
      const auto factor = V::set(a[i * t.a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) sum[i][j] = V::fma(factor, line[j], sum[i][j]);
    }
    a += t.a_col;
    b += t.b_row;
  }
#pragma GCC unroll 8
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) V::store(c + i * t.c_row + j * kLanes, sum[i][j], Full{});
  }
}

template <class V, int Vectors>
void tile_rows(const TileProduct& t, int64_t col) {
  int64_t row = 0;
  for (; row + V::kTileRows <= t.m; row += V::kTileRows)
    tile_registers<V, V::kTileRows, Vectors>(t, row, col);
  for (; row + 2 <= t.m; row += 2) tile_registers<V, 2, Vectors>(t, row, col);
  if (row < t.m) tile_registers<V, 1, Vectors>(t, row, col);
}

template <class V>
void tile_product(const TileProduct& t) {
  constexpr int64_t kWide = V::kTileVectors * V::kLanes;
  int64_t col = 0;
  for (; col + kWide <= t.n; col += kWide) tile_rows<V, V::kTileVectors>(t, col);
  if constexpr (V::kTileVectors > 2) {
    for (; col + 2 * V::kLanes <= t.n; col += 2 * V::kLanes) tile_rows<V, 2>(t, col);
  }
  for (; col < t.n; col += V::kLanes) tile_rows<V, 1>(t, col);
}

// out[rows_padded, cols padded to lanes] = x * factor; rows from `rows` on are 0.
template <class V, class T>
void pack_rows(const T* x, int64_t stride, int64_t rows, int64_t rows_padded, int64_t cols,
               float factor, float* out) {
  const int64_t width = round_up_to_lanes<V>(cols);
  const auto scale = V::set(factor);
  for (int64_t r = 0; r < rows; ++r) {
    for_lanes<V>(cols, [&](int64_t i, auto span) {
      V::store(out + r * width + i, V::mul(V::load(x + r * stride + i, span), scale), Full{});
    });
  }
  for (int64_t i = rows * width; i < rows_padded * width; i += V::kLanes)
    V::store(out + i, V::zero(), Full{});
}

// out[cols padded to lanes, out_stride] with out[c][r] = x[r][c], for r < rows_padded (0 from
// `rows` on). rows_padded is a multiple of lanes.
template <class V, class T>
void pack_transposed(const T* x, int64_t stride, int64_t rows, int64_t rows_padded, int64_t cols,
                     float* out, int64_t out_stride) {
  for (int64_t r = 0; r < rows_padded; r += V::kLanes) {
    for_lanes<V>(cols, [&](int64_t c, auto span) {
      typename V::F block[V::kLanes];
      for (int64_t k = 0; k < V::kLanes; ++k) {
        block[k] = r + k < rows ? V::load(x + (r + k) * stride + c, span) : V::zero();
      }
      V::transpose(block, out + c * out_stride + r, out_stride);
    });
  }
}

template <class V, class T>
void unpack_row(const float* x, float factor, T* out, int64_t cols) {
  const auto scale = V::set(factor);
  for_lanes<V>(cols, [&](int64_t i, auto span) {
    V::store(out + i, V::mul(V::load(x + i, span), scale), span);
  });
}

}  // namespace perdure::kernels::cpu
