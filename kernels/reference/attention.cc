// Rotary positions and causal attention, one query row at a time.

#include <algorithm>
#include <cmath>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {
namespace {

int64_t head_offset(const Tensor& x, int64_t batch, int64_t time, int64_t head) {
  return batch * x.stride(0) + time * x.stride(1) + head * x.stride(2);
}

double dot(const Tensor& a, int64_t a_at, const Tensor& b, int64_t b_at, int64_t size) {
  double sum = 0.0;
  for (int64_t d = 0; d < size; ++d) sum += load(a, a_at + d) * load(b, b_at + d);
  return sum;
}

}  // namespace

void ReferenceOps::rope_table(Stream&, float theta, const Tensor& table) {
  const auto [times, size] = check_matrix(table);
  CHECK_EQ(size % 2, 0);
  for (int64_t t = 0; t < times; ++t) {
    for (int64_t i = 0; i < size / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(size);
      const double angle = static_cast<double>(t) * std::pow(static_cast<double>(theta), exponent);
      store(table, t * table.stride(0) + i, std::cos(angle));
      store(table, t * table.stride(0) + size / 2 + i, std::sin(angle));
    }
  }
}

void ReferenceOps::rope(Stream&, const Tensor& x, const Tensor& table, RopeDirection direction) {
  check_rope(x, table);
  const int64_t half = x.shape(3) / 2;
  const double sign = direction == RopeDirection::kForward ? 1.0 : -1.0;
  for (int64_t b = 0; b < x.shape(0); ++b) {
    for (int64_t t = 0; t < x.shape(1); ++t) {
      for (int64_t h = 0; h < x.shape(2); ++h) {
        const int64_t at = head_offset(x, b, t, h);
        for (int64_t i = 0; i < half; ++i) {
          const double cosine = load(table, t * 2 * half + i);
          const double sine = sign * load(table, t * 2 * half + half + i);
          const double first = load(x, at + i);
          const double second = load(x, at + half + i);
          store(x, at + i, first * cosine - second * sine);
          store(x, at + half + i, second * cosine + first * sine);
        }
      }
    }
  }
}

void ReferenceOps::attention_forward(Stream&, const AttentionArgs& args) {
  const AttentionShape n = check_attention(args);
  a_.resize(static_cast<size_t>(n.time));
  for (int64_t row = 0; row < n.batch * n.heads * n.time; ++row) {
    const int64_t t = row % n.time;
    const int64_t h = row / n.time % n.heads;
    const int64_t b = row / n.time / n.heads;
    const int64_t kv_head = h / (n.heads / n.kv_heads);
    const int64_t q = head_offset(args.q, b, t, h);
    double largest = -INFINITY;
    for (int64_t j = 0; j <= t; ++j) {
      const double score =
          args.scale * dot(args.q, q, args.k, head_offset(args.k, b, j, kv_head), n.head_size);
      a_[static_cast<size_t>(j)] = score;
      largest = std::max(largest, score);
    }
    double sum = 0.0;
    for (int64_t j = 0; j <= t; ++j) sum += std::exp(a_[static_cast<size_t>(j)] - largest);
    store(args.lse, row, largest + std::log(sum));
    for (int64_t d = 0; d < n.head_size; ++d) {
      double value = 0.0;
      for (int64_t j = 0; j <= t; ++j) {
        value += std::exp(a_[static_cast<size_t>(j)] - largest) *
                 load(args.v, head_offset(args.v, b, j, kv_head) + d);
      }
      store(args.out, head_offset(args.out, b, t, h) + d, value / sum);
    }
  }
}

// With P = exp(scores - lse) and dP = dout v^T:  dS = P (dP - rowsum(P dP));  dq = scale dS k;
// dk = scale dS^T q;  dv = P^T dout, the last two summed over the query heads that share a key
// head.
void ReferenceOps::attention_backward(Stream&, const AttentionGradArgs& args) {
  const AttentionShape n = check_attention_grad(args);
  const AttentionArgs& forward = args.forward;
  const int64_t size = n.head_size;
  const int64_t group = n.heads / n.kv_heads;
  c_.resize(static_cast<size_t>(size));
  for (int64_t kv = 0; kv < n.batch * n.kv_heads; ++kv) {
    const int64_t b = kv / n.kv_heads;
    const int64_t kv_head = kv % n.kv_heads;
    a_.assign(static_cast<size_t>(n.time * size), 0.0);
    b_.assign(static_cast<size_t>(n.time * size), 0.0);
    for (int64_t i = 0; i < group * n.time; ++i) {
      const int64_t t = i % n.time;
      const int64_t h = kv_head * group + i / n.time;
      const int64_t q = head_offset(forward.q, b, t, h);
      const int64_t dout = head_offset(args.dout, b, t, h);
      const double lse = load(forward.lse, (b * n.heads + h) * n.time + t);
      d_.assign(static_cast<size_t>(2 * n.time), 0.0);
      double row_sum = 0.0;
      for (int64_t j = 0; j <= t; ++j) {
        const int64_t k = head_offset(forward.k, b, j, kv_head);
        const double p = std::exp(forward.scale * dot(forward.q, q, forward.k, k, size) - lse);
        const double dp =
            dot(args.dout, dout, forward.v, head_offset(forward.v, b, j, kv_head), size);
        d_[static_cast<size_t>(2 * j)] = p;
        d_[static_cast<size_t>(2 * j + 1)] = dp;
        row_sum += p * dp;
      }
      c_.assign(static_cast<size_t>(size), 0.0);
      for (int64_t j = 0; j <= t; ++j) {
        const double p = d_[static_cast<size_t>(2 * j)];
        const double ds = forward.scale * p * (d_[static_cast<size_t>(2 * j + 1)] - row_sum);
        const int64_t k = head_offset(forward.k, b, j, kv_head);
        for (int64_t d = 0; d < size; ++d) {
          c_[static_cast<size_t>(d)] += ds * load(forward.k, k + d);
          a_[static_cast<size_t>(j * size + d)] += ds * load(forward.q, q + d);
          b_[static_cast<size_t>(j * size + d)] += p * load(args.dout, dout + d);
        }
      }
      for (int64_t d = 0; d < size; ++d) {
        store(args.dq, head_offset(args.dq, b, t, h) + d, c_[static_cast<size_t>(d)]);
      }
    }
    for (int64_t j = 0; j < n.time; ++j) {
      for (int64_t d = 0; d < size; ++d) {
        store(args.dk, head_offset(args.dk, b, j, kv_head) + d,
              a_[static_cast<size_t>(j * size + d)]);
        store(args.dv, head_offset(args.dv, b, j, kv_head) + d,
              b_[static_cast<size_t>(j * size + d)]);
      }
    }
  }
}

}  // namespace perdure::kernels::reference
