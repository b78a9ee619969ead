// Rotary positions and attention. Forward: one piece per (sample, head, tile of queries), long ones
// first. Backward: one piece per (sample, key head).

#include "kernels/cpu/cpu_ops.h"

#include <cmath>

namespace perdure::kernels::cpu {
namespace {

const std::byte* head_of(const Tensor& x, int64_t batch, int64_t head) {
  return element(x, batch * x.stride(0) + head * x.stride(2));
}
std::byte* mutable_head_of(const Tensor& x, int64_t batch, int64_t head) {
  return element(x, batch * x.stride(0) + head * x.stride(2));
}

AttentionPiece make_piece(const AttentionArgs& args, const AttentionShape& n) {
  AttentionPiece piece{};
  piece.time = n.time;
  piece.head_size = n.head_size;
  piece.scale = args.scale;
  piece.q_stride = args.q.stride(1);
  piece.k_stride = args.k.stride(1);
  piece.v_stride = args.v.stride(1);
  piece.out_stride = args.out.stride(1);
  return piece;
}

}  // namespace

// Made once per job, in double, by the C library.
void CpuOps::rope_table(Stream&, float theta, const Tensor& table) {
  const auto [times, size] = check_matrix(table);
  CHECK_EQ(size % 2, 0);
  for (int64_t t = 0; t < times; ++t) {
    float* row = table.as<float>() + t * table.stride(0);
    for (int64_t i = 0; i < size / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(size);
      const double angle = static_cast<double>(t) * std::pow(static_cast<double>(theta), exponent);
      row[i] = static_cast<float>(std::cos(angle));
      row[size / 2 + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void CpuOps::rope(Stream&, const Tensor& x, const Tensor& table, RopeDirection direction) {
  check_rope(x, table);
  const int64_t time = x.shape(1);
  const int64_t heads = x.shape(2);
  const int64_t size = x.shape(3);
  const float sign = direction == RopeDirection::kForward ? 1.0f : -1.0f;
  const auto kernel = kernels_.rope[type_index(x.dtype())];
  for_row_pieces(x.shape(0) * time, heads * size, [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t t = row % time;
      const int64_t at = row / time * x.stride(0) + t * x.stride(1);
      for (int64_t h = 0; h < heads; ++h) {
        kernel(element(x, at + h * x.stride(2)), table.as<float>() + t * size, sign, size / 2);
      }
    }
  });
}

void CpuOps::attention_forward(Stream&, const AttentionArgs& args) {
  const AttentionShape n = check_attention(args);
  const Workspace::Scope scope(workspace_);
  const int64_t scratch_size = (kernels_.attention_forward_scratch(n.head_size) + 15) / 16 * 16;
  auto* scratch = workspace_.take<float>(scratch_size * threads());
  const auto kernel = kernels_.attention_forward[type_index(args.q.dtype())];
  const int64_t tiles = (n.time + kAttentionTile - 1) / kAttentionTile;
  const int64_t heads = n.batch * n.heads;
  pool_.run(tiles * heads, [&](int64_t index, int thread) {
    const int64_t batch = index % heads / n.heads;
    const int64_t head = index % n.heads;
    const int64_t kv_head = head / (n.heads / n.kv_heads);
    AttentionPiece piece = make_piece(args, n);
    piece.query_begin = (tiles - 1 - index / heads) * kAttentionTile;
    piece.q = head_of(args.q, batch, head);
    piece.k = head_of(args.k, batch, kv_head);
    piece.v = head_of(args.v, batch, kv_head);
    piece.out = mutable_head_of(args.out, batch, head);
    piece.lse = args.lse.as<float>() + (batch * n.heads + head) * n.time;
    piece.scratch = scratch + thread * scratch_size;
    kernel(piece);
  });
}

void CpuOps::attention_backward(Stream&, const AttentionGradArgs& args) {
  const AttentionShape n = check_attention_grad(args);
  const AttentionArgs& forward = args.forward;
  const Workspace::Scope scope(workspace_);
  const int64_t scratch_size =
      (kernels_.attention_backward_scratch(n.time, n.head_size) + 15) / 16 * 16;
  auto* scratch = workspace_.take<float>(scratch_size * threads());
  const auto kernel = kernels_.attention_backward[type_index(forward.q.dtype())];
  pool_.run(n.batch * n.kv_heads, [&](int64_t index, int thread) {
    const int64_t batch = index / n.kv_heads;
    const int64_t kv_head = index % n.kv_heads;
    AttentionPiece piece = make_piece(forward, n);
    piece.group = n.heads / n.kv_heads;
    const int64_t head = kv_head * piece.group;
    piece.q = head_of(forward.q, batch, head);
    piece.k = head_of(forward.k, batch, kv_head);
    piece.v = head_of(forward.v, batch, kv_head);
    piece.out = mutable_head_of(forward.out, batch, head);
    piece.lse = forward.lse.as<float>() + (batch * n.heads + head) * n.time;
    piece.q_head = forward.q.stride(2);
    piece.out_head = forward.out.stride(2);
    piece.dout_head = args.dout.stride(2);
    piece.dq_head = args.dq.stride(2);
    piece.lse_head = n.time;
    piece.dout = head_of(args.dout, batch, head);
    piece.dq = mutable_head_of(args.dq, batch, head);
    piece.dk = mutable_head_of(args.dk, batch, kv_head);
    piece.dv = mutable_head_of(args.dv, batch, kv_head);
    piece.dout_stride = args.dout.stride(1);
    piece.dq_stride = args.dq.stride(1);
    piece.dk_stride = args.dk.stride(1);
    piece.dv_stride = args.dv.stride(1);
    piece.scratch = scratch + thread * scratch_size;
    kernel(piece);
  });
}

}  // namespace perdure::kernels::cpu
