#pragma once
// The vote: what all workers tell each other once per step, in one small all-reduce (DESIGN section
// 5). Who holds its result knows that every worker had finished the step's reductions.
//
// Layout of the words (u64), op kSumThenMax:
//   [0]     count of sum words that follow
//   sums    loss (fixed point), micro-batches counted, sum of sample marks, squared gradient norm
//           per tensor (bits of a double, given by the tensor's speaker only: x + 0 is exact, so a
//           sum is a gather)
//   maxima  overflow, not finite, uncalibrated, hold, state digest per tensor, its complement (two
//           replicas differ if and only if max(d) != ~max(~d))

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace perdure::runtime::engine {

class Vote {
 public:
  // What nobody has told yet about a step.
  explicit Vote(size_t tensors);
  void clear();

  // -- before the all-reduce
  // The loss of one micro-batch, summed over its tokens. Not finite: raises the flag instead.
  void add_loss(double loss_sum);
  void raise_flags(uint32_t grad_flags);  // of kernels/gradient.h
  void raise_uncalibrated();
  void raise_hold();                  // all ranks stop after this step
  void set_sample_sum(uint64_t sum);  // of the samples that this rank read as a first stage
  void set_squared_norm(base::TensorId tensor, double value);
  void set_digest(base::TensorId tensor, uint64_t digest);  // every holder

  std::span<std::byte> bytes() { return std::as_writable_bytes(std::span(words_)); }
  std::span<const uint64_t> words() const { return words_; }

  // As though the all-reduce had given these. kFailedPrecondition: they are no vote of this model.
  base::Status assign(std::span<const uint64_t> words);

  // -- after it
  double loss_sum() const;  // over all micro-batches and tokens
  uint64_t micro_batches() const { return words_[kMicroBatches]; }
  bool overflow() const;
  bool not_finite() const;
  bool uncalibrated() const;
  bool hold() const;
  uint64_t sample_sum() const { return words_[kSampleSum]; }
  double squared_norm() const;  // over all tensors, added in their order
  double squared_norm(base::TensorId tensor) const;
  uint64_t digest(base::TensorId tensor) const;
  // kDataLoss names the first tensor whose replicas differ.
  base::Status check_digests() const;

 private:
  static constexpr size_t kLoss = 1;
  static constexpr size_t kMicroBatches = 2;
  static constexpr size_t kSampleSum = 3;
  static constexpr size_t kNorms = 4;
  static constexpr size_t kFlags = 4;
  size_t flags_at() const { return kNorms + tensors_; }
  size_t digests_at() const { return flags_at() + kFlags; }

  const size_t tensors_;
  std::vector<uint64_t> words_;
};

}  // namespace perdure::runtime::engine
