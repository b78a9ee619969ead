#pragma once
// A mark for each sample of a job, so that which samples a step has really read can be told in one
// word: the wrapping sum of their marks. A sample that was read twice, or not at all, or another in
// its place changes the sum.

#include <cstdint>

#include "base/random.h"

namespace perdure::parallel {

// Of the sample with this index, counted over the whole job.
constexpr uint64_t sample_mark(uint64_t index) {
  return base::mix64(index * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03);
}

// Of [first, first + count).
constexpr uint64_t sample_marks(uint64_t first, uint64_t count) {
  uint64_t sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += sample_mark(first + i);
  return sum;
}

}  // namespace perdure::parallel
