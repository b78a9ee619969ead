#pragma once
// SampleOrder: which sample the job trains on next, as a pure function of the job's sample counter.
//
// Samples are counted over the whole job, g = 0, 1, 2, ...; nobody counts per worker, so changing
// the number of workers cannot repeat or lose a sample. Each pass over the data (a data epoch) goes
// through all samples once, in an order of its own.

#include <cstdint>

namespace perdure::runtime::data {

// Non-overlapping windows of context + 1 tokens at stride context: the last token of one window is
// the first of the next, where it is only a target. 0 when there are too few tokens.
struct SampleWindows {
  uint64_t tokens = 0;
  uint64_t context = 1;
};
uint64_t count_samples(const SampleWindows& windows);

class SampleOrder {
 public:
  struct Options {
    uint64_t samples = 0;
    uint64_t seed = 0;
  };
  // CHECKs samples > 0.
  explicit SampleOrder(const Options& options);

  uint64_t sample(uint64_t global_sample) const;
  uint64_t data_epoch(uint64_t global_sample) const { return global_sample / options_.samples; }
  uint64_t samples() const { return options_.samples; }

 private:
  Options options_;
};

}  // namespace perdure::runtime::data
