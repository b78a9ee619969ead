#pragma once
// Causal attention without a T x T matrix: tiles of kAttentionTile queries by as many keys, with a
// running max and sum per query (Dao et al., arXiv 2205.14135). Tiles above the diagonal are
// skipped; on the diagonal, blocks of kDiagonalBlock queries look at no more keys than they need.
//
//   forward, one call = one tile of queries of one head: key tiles in ascending order
//   backward, one call = one key head with all query heads that share it: for each of these heads,
//   for each key tile, for each query tile at or below it. dk and dv are sums over ascending (head,
//   query tile), dq over ascending key tiles: one thread, one order.

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kernels_tile.h"
#include "kernels/cpu/vec_math.h"

namespace perdure::kernels::cpu {

inline constexpr int64_t kDiagonalBlock = 16;
static_assert(kAttentionTile % kDiagonalBlock == 0);

template <class V>
int64_t attention_forward_scratch(int64_t head_size) {
  const int64_t width = round_up_to_lanes<V>(head_size);
  return kAttentionTile * (4 * width + kAttentionTile + 2);
}

template <class V>
int64_t attention_backward_scratch(int64_t time, int64_t head_size) {
  const int64_t rows = (time + kAttentionTile - 1) / kAttentionTile * kAttentionTile;
  return rows * 8 * round_up_to_lanes<V>(head_size) + 2 * kAttentionTile * kAttentionTile + rows;
}

// Query rows [row, row + rows) of a tile against the first `keys` keys of a tile.
struct RowBlock {
  int64_t row, rows, keys;
};

enum class TilePlace { kBelowDiagonal, kOnDiagonal };

// The blocks of a tile with `rows` valid queries; calls f(block).
template <class Fn>
inline __attribute__((always_inline)) void for_row_blocks(int64_t rows, TilePlace place, Fn&& f) {
  if (place == TilePlace::kBelowDiagonal) {
    f(RowBlock{0, rows, kAttentionTile});
    return;
  }
  for (int64_t row = 0; row < rows; row += kDiagonalBlock) {
    const int64_t left = rows - row;
    f(RowBlock{row, left < kDiagonalBlock ? left : kDiagonalBlock, row + kDiagonalBlock});
  }
}

// Turns one row of scores into exp(score - max) and updates max, sum and the row of the result.
// Keys from `valid` to `keys` (a multiple of lanes) get 0.
template <class V>
void online_softmax_row(float* scores, int64_t valid, int64_t keys, float* max, float* sum,
                        float* out, int64_t width) {
  auto most = V::set(*max);
  const int64_t whole = valid / V::kLanes * V::kLanes;
  for (int64_t i = 0; i < whole; i += V::kLanes) most = V::max(most, V::load(scores + i, Full{}));
  float largest = V::largest(most);
  for (int64_t i = whole; i < valid; ++i) largest = scores[i] > largest ? scores[i] : largest;
  const auto shift = V::set(largest);
  auto total = V::zero();
  for (int64_t i = 0; i < whole; i += V::kLanes) {
    const auto e = exp_of<V>(V::sub(V::load(scores + i, Full{}), shift));
    total = V::add(total, e);
    V::store(scores + i, e, Full{});
  }
  for (int64_t i = whole; i < keys; i += V::kLanes) {
    const int64_t left = valid - i < 0 ? 0 : valid - i;
    const Part span{static_cast<int>(left < V::kLanes ? left : V::kLanes)};
    const auto e = V::keep(exp_of<V>(V::sub(V::load(scores + i, Full{}), shift)), span);
    total = V::add(total, span.count == 0 ? V::zero() : e);
    V::store(scores + i, span.count == 0 ? V::zero() : e, Full{});
  }
  const auto correction = exp_of<V>(V::sub(V::set(*max), shift));
  float factor[64];
  V::store(factor, correction, Full{});
  *sum = *sum * factor[0] + V::sum(total);
  if (largest != *max) {
    for (int64_t d = 0; d < width; d += V::kLanes) {
      V::store(out + d, V::mul(V::load(out + d, Full{}), correction), Full{});
    }
  }
  *max = largest;
}

template <class V, class T>
void attention_forward(const AttentionPiece& p) {
  constexpr int64_t kTile = kAttentionTile;
  const int64_t width = round_up_to_lanes<V>(p.head_size);
  float* query = p.scratch;
  float* key = query + kTile * width;  // transposed: [width, kTile]
  float* value = key + kTile * width;
  float* out = value + kTile * width;
  float* scores = out + kTile * width;
  float* max = scores + kTile * kTile;
  float* sum = max + kTile;
  const int64_t rows = p.time - p.query_begin < kTile ? p.time - p.query_begin : kTile;

  const auto* q = static_cast<const T*>(p.q) + p.query_begin * p.q_stride;
  pack_rows<V>(q, p.q_stride, rows, rows, p.head_size, p.scale, query);
  for (int64_t i = 0; i < rows * width; i += V::kLanes) V::store(out + i, V::zero(), Full{});
  for (int64_t i = 0; i < rows; ++i) {
    max[i] = -__builtin_inff();
    sum[i] = 0.0f;
  }
  for (int64_t begin = 0; begin <= p.query_begin; begin += kTile) {
    const int64_t keys = p.time - begin < kTile ? p.time - begin : kTile;
    const bool diagonal = begin == p.query_begin;
    const TilePlace place = diagonal ? TilePlace::kOnDiagonal : TilePlace::kBelowDiagonal;
    const auto* k = static_cast<const T*>(p.k) + begin * p.k_stride;
    const auto* v = static_cast<const T*>(p.v) + begin * p.v_stride;
    pack_transposed<V>(k, p.k_stride, keys, kTile, p.head_size, key, kTile);
    pack_rows<V>(v, p.v_stride, keys, kTile, p.head_size, 1.0f, value);
    for_row_blocks(rows, place, [&](const RowBlock& block) {
      float* part = scores + block.row * kTile;
      tile_product<V>({block.rows, block.keys, p.head_size, query + block.row * width, width, 1,
                       key, kTile, part, kTile, 0});
      for (int64_t i = block.row; i < block.row + block.rows; ++i) {
        online_softmax_row<V>(scores + i * kTile, diagonal ? i + 1 : kTile, block.keys, max + i,
                              sum + i, out + i * width, width);
      }
      tile_product<V>({block.rows, width, block.keys, part, kTile, 1, value, width,
                       out + block.row * width, width, 1});
    });
  }
  auto* result = static_cast<T*>(p.out) + p.query_begin * p.out_stride;
  for (int64_t i = 0; i < rows; ++i) {
    unpack_row<V>(out + i * width, 1.0f / sum[i], result + i * p.out_stride, p.head_size);
    float log_sum[64];
    V::store(log_sum, log_of<V>(V::set(sum[i])), Full{});
    p.lse[p.query_begin + i] = max[i] + log_sum[0];
  }
}

// Scratch of the backward, all f32. Tiles of key and value are transposed, tile after tile.
struct BackwardScratch {
  float *key, *key_t, *value_t, *dkey, *dvalue, *query, *dout, *dquery;  // [rows, width]
  float *scores, *dscores;                                               // [tile, tile]
  float* row_dot;                                                        // [rows]: dout . out
};

template <class V>
BackwardScratch cut_scratch(float* at, int64_t rows, int64_t width) {
  BackwardScratch s;
  for (float** part :
       {&s.key, &s.key_t, &s.value_t, &s.dkey, &s.dvalue, &s.query, &s.dout, &s.dquery}) {
    *part = at;
    at += rows * width;
  }
  s.scores = at;
  s.dscores = at + kAttentionTile * kAttentionTile;
  s.row_dot = s.dscores + kAttentionTile * kAttentionTile;
  return s;
}

// scores := P = exp(scores - lse), dscores := P (dP - row_dot); keys from `valid` on get 0.
template <class V>
void backward_row(float* scores, float* dscores, int64_t valid, int64_t keys, float lse,
                  float row_dot) {
  const auto shift = V::set(lse);
  const auto dot = V::set(row_dot);
  for (int64_t i = 0; i < keys; i += V::kLanes) {
    const int64_t left = valid - i < 0 ? 0 : valid - i;
    const auto score = V::load(scores + i, Full{});
    const auto dp = V::load(dscores + i, Full{});
    auto probability = exp_of<V>(V::sub(score, shift));
    auto ds = V::mul(probability, V::sub(dp, dot));
    if (left < V::kLanes) {
      const Part span{static_cast<int>(left)};
      probability = left == 0 ? V::zero() : V::keep(probability, span);
      ds = left == 0 ? V::zero() : V::keep(ds, span);
    }
    V::store(scores + i, probability, Full{});
    V::store(dscores + i, ds, Full{});
  }
}

// One tile of queries (from row q0) against one tile of keys (from row k0).
template <class V>
void backward_tile(const AttentionPiece& p, const BackwardScratch& s, const float* lse, int64_t q0,
                   int64_t k0) {
  constexpr int64_t kTile = kAttentionTile;
  const int64_t width = round_up_to_lanes<V>(p.head_size);
  const int64_t rows = p.time - q0 < kTile ? p.time - q0 : kTile;
  const bool diagonal = q0 == k0;
  const TilePlace place = diagonal ? TilePlace::kOnDiagonal : TilePlace::kBelowDiagonal;
  for_row_blocks(rows, place, [&](const RowBlock& block) {
    const int64_t at = q0 + block.row;
    const float* query = s.query + at * width;
    const float* dout = s.dout + at * width;
    float* scores = s.scores;
    float* dscores = s.dscores;
    tile_product<V>({block.rows, block.keys, p.head_size, query, width, 1, s.key_t + k0 * width,
                     kTile, scores, kTile, 0});
    tile_product<V>({block.rows, block.keys, p.head_size, dout, width, 1, s.value_t + k0 * width,
                     kTile, dscores, kTile, 0});
    for (int64_t i = 0; i < block.rows; ++i) {
      backward_row<V>(scores + i * kTile, dscores + i * kTile, diagonal ? block.row + i + 1 : kTile,
                      block.keys, lse[at + i], s.row_dot[at + i]);
    }
    tile_product<V>({block.keys, width, block.rows, scores, 1, kTile, dout, width,
                     s.dvalue + k0 * width, width, 1});
    tile_product<V>({block.keys, width, block.rows, dscores, 1, kTile, query, width,
                     s.dkey + k0 * width, width, 1});
    tile_product<V>({block.rows, width, block.keys, dscores, kTile, 1, s.key + k0 * width, width,
                     s.dquery + at * width, width, 1});
  });
}

// Packs queries and dout of one head, and the dot products dout . out.
template <class V, class T>
void backward_pack_head(const AttentionPiece& p, const BackwardScratch& s, int64_t head) {
  const int64_t width = round_up_to_lanes<V>(p.head_size);
  const auto* q = static_cast<const T*>(p.q) + head * p.q_head;
  const auto* out = static_cast<const T*>(p.out) + head * p.out_head;
  const auto* dout = static_cast<const T*>(p.dout) + head * p.dout_head;
  pack_rows<V>(q, p.q_stride, p.time, p.time, p.head_size, p.scale, s.query);
  pack_rows<V>(dout, p.dout_stride, p.time, p.time, p.head_size, 1.0f, s.dout);
  for (int64_t t = 0; t < p.time; ++t) {
    auto sum = V::zero();
    for_lanes<V>(p.head_size, [&](int64_t i, auto span) {
      sum = V::fma(V::load(s.dout + t * width + i, span), V::load(out + t * p.out_stride + i, span),
                   sum);
    });
    s.row_dot[t] = V::sum(sum);
  }
  for (int64_t i = 0; i < p.time * width; i += V::kLanes) V::store(s.dquery + i, V::zero(), Full{});
}

template <class V, class T>
void attention_backward(const AttentionPiece& p) {
  constexpr int64_t kTile = kAttentionTile;
  const int64_t width = round_up_to_lanes<V>(p.head_size);
  const int64_t rows = (p.time + kTile - 1) / kTile * kTile;
  const BackwardScratch s = cut_scratch<V>(p.scratch, rows, width);
  const auto* k = static_cast<const T*>(p.k);
  const auto* v = static_cast<const T*>(p.v);
  pack_rows<V>(k, p.k_stride, p.time, rows, p.head_size, 1.0f, s.key);
  for (int64_t at = 0; at < rows; at += kTile) {
    const int64_t keys = p.time - at < kTile ? p.time - at : kTile;
    pack_transposed<V>(k + at * p.k_stride, p.k_stride, keys, kTile, p.head_size,
                       s.key_t + at * width, kTile);
    pack_transposed<V>(v + at * p.v_stride, p.v_stride, keys, kTile, p.head_size,
                       s.value_t + at * width, kTile);
  }
  for (int64_t i = 0; i < rows * width; i += V::kLanes) {
    V::store(s.dkey + i, V::zero(), Full{});
    V::store(s.dvalue + i, V::zero(), Full{});
  }
  for (int64_t head = 0; head < p.group; ++head) {
    backward_pack_head<V, T>(p, s, head);
    const float* lse = p.lse + head * p.lse_head;
    for (int64_t k0 = 0; k0 < p.time; k0 += kTile) {
      for (int64_t q0 = k0; q0 < p.time; q0 += kTile) backward_tile<V>(p, s, lse, q0, k0);
    }
    auto* dq = static_cast<T*>(p.dq) + head * p.dq_head;
    for (int64_t t = 0; t < p.time; ++t) {
      unpack_row<V>(s.dquery + t * width, p.scale, dq + t * p.dq_stride, p.head_size);
    }
  }
  for (int64_t t = 0; t < p.time; ++t) {
    unpack_row<V>(s.dkey + t * width, 1.0f, static_cast<T*>(p.dk) + t * p.dk_stride, p.head_size);
    unpack_row<V>(s.dvalue + t * width, 1.0f, static_cast<T*>(p.dv) + t * p.dv_stride, p.head_size);
  }
}

}  // namespace perdure::kernels::cpu
