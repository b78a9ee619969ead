#include "kernels/op_checks.h"

#include <bit>
#include <limits>

namespace perdure::kernels {
namespace {

constexpr int64_t kDimensionMax = std::numeric_limits<int32_t>::max();

void check_heads(const Tensor& x, const AttentionShape& shape, int64_t heads, DType dtype) {
  CHECK_EQ(x.rank(), 4);
  CHECK(x.dtype() == dtype) << x.to_string();
  CHECK(x.shape(0) == shape.batch && x.shape(1) == shape.time) << x.to_string();
  CHECK(x.shape(2) == heads && x.shape(3) == shape.head_size) << x.to_string();
}

int64_t check_token_rows(const Tensor& tokens, const Tensor& rows) {
  CHECK_EQ(tokens.rank(), 1);
  CHECK(tokens.dtype() == DType::kI32);
  CHECK_EQ(tokens.shape(0), rows.shape(0));
  return tokens.shape(0);
}

}  // namespace

int64_t row_offset(const Tensor& x, int64_t row) {
  int64_t offset = 0;
  for (int d = x.rank() - 2; d >= 0; --d) {
    offset += row % x.shape(d) * x.stride(d);
    row /= x.shape(d);
  }
  return offset;
}

void check_compute_dtype(const Tensor& x) {
  CHECK(x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) << x.to_string();
}

void check_same_shape(const Tensor& a, const Tensor& b) {
  CHECK_EQ(a.rank(), b.rank());
  for (int d = 0; d < a.rank(); ++d) CHECK_EQ(a.shape(d), b.shape(d)) << "dimension " << d;
}

MatrixShape check_matrix(const Tensor& x) {
  CHECK_EQ(x.rank(), 2);
  CHECK(x.shape(0) <= kDimensionMax && x.shape(1) <= kDimensionMax) << x.to_string();
  return {x.shape(0), x.shape(1)};
}

void check_f32_vector(const Tensor& x, int64_t size) {
  CHECK(x.dtype() == DType::kF32) << x.to_string();
  CHECK_EQ(x.rank(), 1);
  CHECK_EQ(x.shape(0), size);
}

void check_sink(const GradSink& sink) {
  CHECK(sink.elements == 0 || sink.accumulator != nullptr);
  if (sink.kind == GradKind::kFloat) return;
  const int64_t block = sink.block_elements;
  CHECK(block > 0);
  CHECK(block >= sink.elements ||
        (block >= 64 && std::has_single_bit(static_cast<uint64_t>(block))))
      << "block of " << block;
  CHECK(sink.exponents != nullptr && sink.abs_max != nullptr && sink.flags != nullptr);
  const int64_t limit_max = sink.kind == GradKind::kFixed32
                                ? int64_t{std::numeric_limits<int32_t>::max()}
                                : int64_t{1} << 62;
  CHECK(sink.limit >= 0 && sink.limit <= limit_max) << "limit " << sink.limit;
}

void check_copy(const Tensor& from, const Tensor& to) {
  check_same_shape(from, to);
  if (from.dtype() == to.dtype()) return;
  check_compute_dtype(from);
  check_compute_dtype(to);
}

void check_add(const Tensor& x, const Tensor& y) {
  check_matrix(x);
  check_same_shape(x, y);
  check_compute_dtype(x);
  CHECK(y.dtype() == DType::kF32);
}

void check_embedding_forward(const Tensor& tokens, const Tensor& table,
                             const Tensor& position_table, int64_t time, const Tensor& y) {
  check_matrix(y);
  CHECK(y.dtype() == DType::kF32);
  check_token_rows(tokens, y);
  check_compute_dtype(table);
  CHECK_EQ(check_matrix(table).cols, y.shape(1));
  if (position_table.is_absent()) return;
  CHECK(position_table.dtype() == table.dtype());
  CHECK(time > 0 && check_matrix(position_table).rows >= time);
  CHECK_EQ(position_table.shape(1), y.shape(1));
}

void check_embedding_backward(const Tensor& tokens, const Tensor& dy, const GradSink& sink) {
  check_sink(sink);
  CHECK(dy.dtype() == DType::kF32);
  const MatrixShape shape = check_matrix(dy);
  check_token_rows(tokens, dy);
  CHECK(shape.cols > 0 && sink.elements % shape.cols == 0);
}

void check_position_backward(const Tensor& dy, int64_t time, const GradSink& sink) {
  check_sink(sink);
  CHECK(dy.dtype() == DType::kF32);
  const MatrixShape shape = check_matrix(dy);
  CHECK(time > 0 && shape.cols > 0);
  CHECK(sink.elements % shape.cols == 0 && sink.elements / shape.cols >= time);
}

MatrixShape check_norm(const NormArgs& args, NormKind kind) {
  const MatrixShape shape = check_matrix(args.x);
  CHECK(args.x.dtype() == DType::kF32);
  check_f32_vector(args.gamma, shape.cols);
  check_f32_vector(args.rstd, shape.rows);
  CHECK_EQ(args.mean.is_absent(), kind == NormKind::kRms);
  if (kind == NormKind::kLayer) check_f32_vector(args.mean, shape.rows);
  if (!args.beta.is_absent()) check_f32_vector(args.beta, shape.cols);
  CHECK(args.beta.is_absent() || kind == NormKind::kLayer);
  if (!args.y.is_absent()) {
    check_same_shape(args.x, args.y);
    check_compute_dtype(args.y);
  }
  return shape;
}

MatrixShape check_norm_grad(const NormGradArgs& args, NormKind kind) {
  const MatrixShape shape = check_norm(args.forward, kind);
  check_same_shape(args.dy, args.forward.x);
  check_compute_dtype(args.dy);
  check_same_shape(args.dx, args.forward.x);
  CHECK(args.dx.dtype() == DType::kF32);
  check_f32_vector(args.dgamma, shape.cols);
  if (!args.dbeta.is_absent()) check_f32_vector(args.dbeta, shape.cols);
  CHECK(args.dbeta.is_absent() || kind == NormKind::kLayer);
  return shape;
}

AttentionShape check_attention(const AttentionArgs& args) {
  CHECK_EQ(args.q.rank(), 4);
  CHECK_EQ(args.k.rank(), 4);
  check_compute_dtype(args.q);
  const AttentionShape shape{args.q.shape(0), args.q.shape(1), args.q.shape(2), args.k.shape(2),
                             args.q.shape(3)};
  CHECK(shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0);
  const DType dtype = args.q.dtype();
  check_heads(args.k, shape, shape.kv_heads, dtype);
  check_heads(args.v, shape, shape.kv_heads, dtype);
  check_heads(args.out, shape, shape.heads, dtype);
  CHECK(args.lse.dtype() == DType::kF32 && args.lse.rank() == 3 && args.lse.is_dense());
  CHECK(args.lse.shape(0) == shape.batch && args.lse.shape(1) == shape.heads);
  CHECK_EQ(args.lse.shape(2), shape.time);
  return shape;
}

AttentionShape check_attention_grad(const AttentionGradArgs& args) {
  const AttentionShape shape = check_attention(args.forward);
  const DType dtype = args.forward.q.dtype();
  check_heads(args.dout, shape, shape.heads, dtype);
  check_heads(args.dq, shape, shape.heads, dtype);
  check_heads(args.dk, shape, shape.kv_heads, dtype);
  check_heads(args.dv, shape, shape.kv_heads, dtype);
  return shape;
}

void check_rope(const Tensor& x, const Tensor& table) {
  CHECK_EQ(x.rank(), 4);
  check_compute_dtype(x);
  CHECK(table.dtype() == DType::kF32 && table.is_dense());
  CHECK(check_matrix(table).rows >= x.shape(1) && table.shape(1) == x.shape(3))
      << table.to_string();
  CHECK_EQ(x.shape(3) % 2, 0);
}

void check_activation(const Tensor& x, const Tensor& y) {
  check_same_shape(x, y);
  check_compute_dtype(x);
  CHECK(x.dtype() == y.dtype());
}

MatrixShape check_swiglu(const Tensor& x, const Tensor& y) {
  const MatrixShape shape = check_matrix(y);
  check_compute_dtype(x);
  CHECK(x.dtype() == y.dtype());
  CHECK(check_matrix(x).rows == shape.rows && x.shape(1) == 2 * shape.cols) << x.to_string();
  return shape;
}

MatmulShape check_matmul(const MatmulArgs& args) {
  const MatrixShape a = check_matrix(args.a);
  const MatrixShape b = check_matrix(args.b);
  const MatrixShape c = check_matrix(args.c);
  const bool a_flips = args.transpose_a == Transpose::kYes;
  const bool b_flips = args.transpose_b == Transpose::kYes;
  const MatmulShape shape{c.rows, c.cols, a_flips ? a.rows : a.cols};
  CHECK_EQ(a_flips ? a.cols : a.rows, shape.m);
  CHECK_EQ(b_flips ? b.rows : b.cols, shape.n);
  CHECK_EQ(b_flips ? b.cols : b.rows, shape.k);
  check_compute_dtype(args.a);
  CHECK(args.a.dtype() == args.b.dtype());
  CHECK(args.c.dtype() == DType::kF32 || args.c.dtype() == args.a.dtype());
  if (!args.bias.is_absent()) check_f32_vector(args.bias, shape.n);
  return shape;
}

MatmulShape check_weight_gradient(const Tensor& dy, const Tensor& x, const GradSink& sink) {
  check_sink(sink);
  const MatrixShape a = check_matrix(dy);
  const MatrixShape b = check_matrix(x);
  check_compute_dtype(dy);
  CHECK(dy.dtype() == x.dtype());
  CHECK_EQ(a.rows, b.rows);
  CHECK_EQ(a.cols * b.cols, sink.elements);
  return {a.cols, b.cols, a.rows};
}

void check_softmax_state(const SoftmaxState& state) {
  CHECK_EQ(state.max.rank(), 1);
  check_f32_vector(state.max, state.max.shape(0));
  check_f32_vector(state.sum, state.max.shape(0));
  check_f32_vector(state.target_logit, state.max.shape(0));
}

MatrixShape check_softmax(const Tensor& logits, const Tensor& targets, const SoftmaxState& state) {
  check_softmax_state(state);
  const MatrixShape shape = check_matrix(logits);
  CHECK(logits.dtype() == DType::kF32);
  CHECK_EQ(state.max.shape(0), shape.rows);
  check_token_rows(targets, logits);
  return shape;
}

void check_adamw(const AdamwArgs& args) {
  const GradSink& sink = args.gradient;
  CHECK_EQ(args.param.rank(), 1);
  const int64_t elements = args.param.shape(0);
  check_f32_vector(args.param, elements);
  check_f32_vector(args.m, elements);
  check_f32_vector(args.v, elements);
  if (!args.param_low.is_absent()) {
    CHECK(args.param_low.dtype() == DType::kBF16 && args.param_low.rank() == 1);
    CHECK_EQ(args.param_low.shape(0), elements);
  }
  CHECK_EQ(sink.elements, elements);
  CHECK(elements == 0 || sink.accumulator != nullptr);
  CHECK(sink.kind == GradKind::kFloat || (sink.exponents != nullptr && sink.block_elements > 0));
  if (!args.digests.empty()) check_digests(args.param, args.m, args.v, args.digests);
}

void check_digests(const Tensor& param, const Tensor& m, const Tensor& v,
                   std::span<uint64_t> digests) {
  CHECK_EQ(param.rank(), 1);
  const int64_t elements = param.shape(0);
  check_f32_vector(param, elements);
  check_f32_vector(m, elements);
  check_f32_vector(v, elements);
  CHECK_EQ(static_cast<int64_t>(digests.size()), (elements + kDigestChunk - 1) / kDigestChunk);
}

}  // namespace perdure::kernels
