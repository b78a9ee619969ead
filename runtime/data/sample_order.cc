#include "runtime/data/sample_order.h"

#include "base/check.h"
#include "base/random.h"

namespace perdure::runtime::data {

uint64_t count_samples(uint64_t tokens, uint64_t context) {
  CHECK_GT(context, 0u);
  return tokens == 0 ? 0 : (tokens - 1) / context;
}

SampleOrder::SampleOrder(uint64_t samples, uint64_t seed) : samples_(samples), seed_(seed) {
  CHECK_GT(samples, 0u);
}

uint64_t SampleOrder::sample(uint64_t global_sample) const {
  // Keeps this use of the job's seed apart from every other one.
  constexpr uint64_t kPurpose = 0x73616D706C65;  // "sample"
  const uint64_t key = base::mix64(base::mix64(seed_ ^ kPurpose) + data_epoch(global_sample));
  return base::keyed_permutation(global_sample % samples_, samples_, key);
}

}  // namespace perdure::runtime::data
