// Softmax and cross-entropy: one row of one chunk of the vocabulary at a time.

#include <cmath>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {

void CpuOps::softmax_begin(Stream&, const SoftmaxState& state) {
  check_softmax_state(state);
  for (int64_t r = 0; r < state.max.shape(0); ++r) {
    state.max.as<float>()[r] = -INFINITY;
    state.sum.as<float>()[r] = 0.0f;
    state.target_logit.as<float>()[r] = 0.0f;
  }
}

void CpuOps::softmax_update(Stream&, const Tensor& logits, const Tensor& targets,
                            int64_t vocabulary_begin, const SoftmaxState& state) {
  const auto [rows, cols] = check_softmax(logits, targets, state);
  const auto* target = targets.as<int32_t>();
  const int64_t width = cols;
  for_row_pieces(rows, cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = logits.as<float>() + r * logits.stride(0);
      kernels_.softmax_update(row, width, state.max.as<float>() + r, state.sum.as<float>() + r);
      const int64_t column = target[r] - vocabulary_begin;
      if (column >= 0 && column < width) state.target_logit.as<float>()[r] = row[column];
    }
  });
}

void CpuOps::softmax_loss(Stream&, const SoftmaxState& state, const Tensor& loss) {
  check_softmax_state(state);
  CHECK_EQ(loss.elements(), 1);
  double sum = 0.0;
  for (int64_t r = 0; r < state.max.shape(0); ++r) {
    sum += std::log(static_cast<double>(state.sum.as<float>()[r])) +
           static_cast<double>(state.max.as<float>()[r]) -
           static_cast<double>(state.target_logit.as<float>()[r]);
  }
  *loss.as<double>() = sum;
}

void CpuOps::softmax_backward(Stream&, const Tensor& logits, const Tensor& targets,
                              int64_t vocabulary_begin, const SoftmaxState& state, float scale,
                              const Tensor& dlogits) {
  const auto [rows, cols] = check_softmax(logits, targets, state);
  check_same_shape(logits, dlogits);
  check_compute_dtype(dlogits);
  const auto* target = targets.as<int32_t>();
  const auto kernel = kernels_.softmax_backward[type_index(dlogits.dtype())];
  const int64_t width = cols;
  for_row_pieces(rows, cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = logits.as<float>() + r * logits.stride(0);
      const float max = state.max.as<float>()[r];
      const float factor = scale / state.sum.as<float>()[r];
      const int64_t column = target[r] - vocabulary_begin;
      const bool here = column >= 0 && column < width;
      // Read before the row is overwritten: dlogits may be the logits.
      float hot = here ? row[column] - max : 0.0f;
      kernel(row, width, max, factor, element(dlogits, r * dlogits.stride(0)));
      if (!here) continue;
      kernels_.exp(&hot, &hot, 1);
      const float value = hot * factor - scale;
      std::byte* at = element(dlogits, r * dlogits.stride(0) + column);
      if (dlogits.dtype() == DType::kF32) {
        *reinterpret_cast<float*>(at) = value;
      } else {
        *reinterpret_cast<BF16*>(at) = BF16::from_float(value);
      }
    }
  });
}

}  // namespace perdure::kernels::cpu
