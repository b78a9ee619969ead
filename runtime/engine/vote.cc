#include "runtime/engine/vote.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/gradient.h"

namespace perdure::runtime::engine {
namespace {

// Losses are summed as integers with 20 bits after the point. The limit of one leaves room for 2^20
// micro-batches; a real one is far below it (100,000 tokens at 11 nats are 2^20).
constexpr double kLossScale = 1048576.0;
constexpr double kLossLimit = 8388608.0;  // 2^23

}  // namespace

Vote::Vote(size_t tensors) : tensors_(tensors), words_(kNorms + tensors + kFlags + 2 * tensors) {
  clear();
}

void Vote::clear() {
  std::fill(words_.begin(), words_.end(), 0);
  words_[0] = kNorms + tensors_ - 1;
}

base::Status Vote::assign(std::span<const uint64_t> words) {
  if (words.size() != words_.size() || words[0] != kNorms + tensors_ - 1) {
    return base::failed_precondition("a vote of " + std::to_string(words.size()) + " words where " +
                                     std::to_string(words_.size()) + " belong to the model");
  }
  std::copy(words.begin(), words.end(), words_.begin());
  return base::Status::ok();
}

void Vote::add_loss(double loss_sum) {
  ++words_[kMicroBatches];
  if (!std::isfinite(loss_sum) || std::fabs(loss_sum) > kLossLimit) {
    words_[flags_at() + 1] = 1;
    return;
  }
  words_[kLoss] += static_cast<uint64_t>(std::llrint(loss_sum * kLossScale));
}

void Vote::raise_flags(uint32_t grad_flags) {
  if (grad_flags & kernels::kGradOverflow) words_[flags_at()] = 1;
  if (grad_flags & kernels::kGradNonFinite) words_[flags_at() + 1] = 1;
}

void Vote::raise_uncalibrated() { words_[flags_at() + 2] = 1; }
void Vote::raise_hold() { words_[flags_at() + 3] = 1; }
void Vote::set_sample_sum(uint64_t sum) { words_[kSampleSum] = sum; }

void Vote::set_squared_norm(base::TensorId tensor, double value) {
  CHECK_LT(tensor.value(), tensors_);
  words_[kNorms + tensor.value()] = std::bit_cast<uint64_t>(value);
}

void Vote::set_digest(base::TensorId tensor, uint64_t digest) {
  CHECK_LT(tensor.value(), tensors_);
  words_[digests_at() + tensor.value()] = digest;
  words_[digests_at() + tensors_ + tensor.value()] = ~digest;
}

double Vote::loss_sum() const {
  return static_cast<double>(static_cast<int64_t>(words_[kLoss])) / kLossScale;
}
bool Vote::overflow() const { return words_[flags_at()] != 0; }
bool Vote::not_finite() const { return words_[flags_at() + 1] != 0; }
bool Vote::uncalibrated() const { return words_[flags_at() + 2] != 0; }
bool Vote::hold() const { return words_[flags_at() + 3] != 0; }

double Vote::squared_norm(base::TensorId tensor) const {
  return std::bit_cast<double>(words_[kNorms + tensor.value()]);
}

double Vote::squared_norm() const {
  double sum = 0.0;
  for (uint32_t t = 0; t < tensors_; ++t) sum += squared_norm(base::TensorId(t));
  return sum;
}

uint64_t Vote::digest(base::TensorId tensor) const { return words_[digests_at() + tensor.value()]; }

base::Status Vote::check_digests() const {
  for (uint32_t t = 0; t < tensors_; ++t) {
    const uint64_t highest = words_[digests_at() + t];
    const uint64_t lowest = ~words_[digests_at() + tensors_ + t];
    if (highest != lowest) {
      return base::data_loss("replicas of tensor " + std::to_string(t) +
                             " differ after the last step");
    }
  }
  return base::Status::ok();
}

}  // namespace perdure::runtime::engine
