#include "runtime/data/sample_order.h"

#include "base/check.h"
#include "base/random.h"

namespace perdure::runtime::data {

uint64_t count_samples(const SampleWindows& windows) {
  CHECK_GT(windows.context, 0u);
  return windows.tokens == 0 ? 0 : (windows.tokens - 1) / windows.context;
}

SampleOrder::SampleOrder(const Options& options) : options_(options) {
  CHECK_GT(options.samples, 0u);
}

uint64_t SampleOrder::sample(uint64_t global_sample) const {
  // Keeps this use of the job's seed apart from every other one.
  constexpr uint64_t kPurpose = 0x73616D706C65;  // "sample"
  const uint64_t key =
      base::mix64(base::mix64(options_.seed ^ kPurpose) + data_epoch(global_sample));
  return base::keyed_permutation(global_sample % options_.samples, options_.samples, key);
}

}  // namespace perdure::runtime::data
