#pragma once
// The shapes and dtypes that ops.h asks for, checked in one place for all implementations. A
// violation is a bug of the caller and crashes (base/check.h). Functions return the sizes that they
// found.

#include <cstdint>

#include "kernels/ops.h"

namespace perdure::kernels {

enum class NormKind : uint8_t { kLayer, kRms };

struct MatmulShape {
  int64_t m, n, k;
};
struct AttentionShape {
  int64_t batch, time, heads, kv_heads, head_size;
};
struct MatrixShape {
  int64_t rows, cols;
};

// Row r of a tensor seen as [rows, last dimension], in elements from its data.
int64_t row_offset(const Tensor& x, int64_t row);
inline int64_t row_count(const Tensor& x) {
  const int64_t cols = x.shape(x.rank() - 1);
  return cols == 0 ? 0 : x.elements() / cols;
}

void check_compute_dtype(const Tensor& x);  // f32 or bf16
void check_same_shape(const Tensor& a, const Tensor& b);
MatrixShape check_matrix(const Tensor& x);
void check_f32_vector(const Tensor& x, int64_t size);
void check_sink(const GradSink& sink);

void check_copy(const Tensor& from, const Tensor& to);
void check_add(const Tensor& x, const Tensor& y);
void check_embedding_forward(const Tensor& tokens, const Tensor& table,
                             const Tensor& position_table, int64_t time, const Tensor& y);
void check_embedding_backward(const Tensor& tokens, const Tensor& dy, const GradSink& sink);
void check_position_backward(const Tensor& dy, int64_t time, const GradSink& sink);
MatrixShape check_norm(const NormArgs& args, NormKind kind);
MatrixShape check_norm_grad(const NormGradArgs& args, NormKind kind);
AttentionShape check_attention(const AttentionArgs& args);
AttentionShape check_attention_grad(const AttentionGradArgs& args);
void check_rope(const Tensor& x, const Tensor& table);
void check_activation(const Tensor& x, const Tensor& y);
MatrixShape check_swiglu(const Tensor& x, const Tensor& y);  // [R, F]
MatmulShape check_matmul(const MatmulArgs& args);
MatmulShape check_weight_gradient(const Tensor& dy, const Tensor& x, const GradSink& sink);
MatrixShape check_softmax(const Tensor& logits, const Tensor& targets, const SoftmaxState& state);
void check_softmax_state(const SoftmaxState& state);
void check_adamw(const AdamwArgs& args);
void check_digests(const Tensor& param, const Tensor& m, const Tensor& v,
                   std::span<uint64_t> digests);

}  // namespace perdure::kernels
