// Softmax and cross-entropy over chunks of the vocabulary.

#include <algorithm>
#include <cmath>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {

void ReferenceOps::softmax_begin(Stream&, const SoftmaxState& state) {
  check_softmax_state(state);
  for (int64_t r = 0; r < state.max.shape(0); ++r) {
    store(state.max, r, -INFINITY);
    store(state.sum, r, 0.0);
    store(state.target_logit, r, 0.0);
  }
}

void ReferenceOps::softmax_update(Stream&, const Tensor& logits, const Tensor& targets,
                                  int64_t vocabulary_begin, const SoftmaxState& state) {
  const auto [rows, cols] = check_softmax(logits, targets, state);
  const auto* target = targets.as<int32_t>();
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = r * logits.stride(0);
    const double before = load(state.max, r);
    double largest = before;
    for (int64_t c = 0; c < cols; ++c) largest = std::max(largest, load(logits, row + c));
    double sum = load(state.sum, r) == 0.0 ? 0.0 : load(state.sum, r) * std::exp(before - largest);
    for (int64_t c = 0; c < cols; ++c) sum += std::exp(load(logits, row + c) - largest);
    store(state.max, r, largest);
    store(state.sum, r, sum);
    const int64_t column = target[r] - vocabulary_begin;
    if (column >= 0 && column < cols) store(state.target_logit, r, load(logits, row + column));
  }
}

void ReferenceOps::softmax_loss(Stream&, const SoftmaxState& state, const Tensor& loss) {
  check_softmax_state(state);
  CHECK_EQ(loss.elements(), 1);
  double sum = 0.0;
  for (int64_t r = 0; r < state.max.shape(0); ++r) {
    sum += std::log(load(state.sum, r)) + load(state.max, r) - load(state.target_logit, r);
  }
  *loss.as<double>() = sum;
}

void ReferenceOps::softmax_backward(Stream&, const Tensor& logits, const Tensor& targets,
                                    int64_t vocabulary_begin, const SoftmaxState& state,
                                    float scale, const Tensor& dlogits) {
  const auto [rows, cols] = check_softmax(logits, targets, state);
  check_same_shape(logits, dlogits);
  check_compute_dtype(dlogits);
  const auto* target = targets.as<int32_t>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double logit = load(logits, r * logits.stride(0) + c);
      const double p = std::exp(logit - load(state.max, r)) / load(state.sum, r);
      const double hot = target[r] - vocabulary_begin == c ? 1.0 : 0.0;
      store(dlogits, r * dlogits.stride(0) + c, (p - hot) * static_cast<double>(scale));
    }
  }
}

}  // namespace perdure::kernels::reference
