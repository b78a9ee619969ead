#pragma once
// The last layer and its loss in one call, without ever holding all logits: for hidden h [R, C] and
// weight W [V, C] it computes softmax cross-entropy of h W^T against the targets, a chunk of the
// vocabulary at a time, in two passes (Milakov and Gimelshein's running softmax, arXiv 1805.02867):
//
//   pass 1, chunk by chunk: logits = h W_c^T; fold them into the running max and sum
//   pass 2, chunk by chunk: dlogits = (softmax - onehot) * scale; dh += dlogits W_c; dW_c -> sink,
//   once
//
// Chunk borders depend on V only. When R * V f32 logits fit in kKeptLogitsBytesMax they are kept
// between the passes, else computed again: the same product of the same operands, so the bits are
// equal.

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops.h"

namespace perdure::kernels {

// Part of the numerics: another value gives other (equally good) bits.
inline constexpr int64_t kVocabularyChunk = 4096;
// Not part of the numerics: only time and memory depend on it.
inline constexpr int64_t kKeptLogitsBytesMax = int64_t{64} << 20;

enum class KeepLogits : uint8_t { kWhenTheyFit, kNever };

struct LinearCrossEntropyShape {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t vocabulary = 0;
  DType dtype = DType::kF32;  // of hidden and weight
  KeepLogits keep = KeepLogits::kWhenTheyFit;
};

struct LinearCrossEntropyArgs {
  Tensor hidden{};             // T [R, C]
  Tensor weight{};             // T [V, C]
  Tensor targets{};            // i32 [R], each in [0, V)
  float scale = 1.0f;          // of the gradients, not of the loss
  Tensor loss{};               // f64 [1]: sum over the rows
  Tensor dhidden{};            // T [R, C], overwritten; not read by the forward form
  GradSink weight_gradient{};  // of V * C elements; not read by the forward form
  std::span<std::byte>
      workspace{};  // 64-byte aligned device memory, at least as many bytes as below
  KeepLogits keep = KeepLogits::kWhenTheyFit;
};

size_t linear_cross_entropy_workspace_bytes(const LinearCrossEntropyShape& shape);
void linear_cross_entropy(Ops& ops, Stream& stream, const LinearCrossEntropyArgs& args);

// Loss only. Its workspace is smaller; bits of the loss are equal to those of the full form.
size_t linear_cross_entropy_forward_workspace_bytes(const LinearCrossEntropyShape& shape);
void linear_cross_entropy_forward(Ops& ops, Stream& stream, const LinearCrossEntropyArgs& args);

}  // namespace perdure::kernels
