#pragma once
// Which checkpoints may be removed. Pure.

#include <cstdint>
#include <span>
#include <vector>

namespace perdure::checkpoint {

struct RetentionRule {
  uint32_t keep_last = 3;            // at least 1: the newest committed one is never removed
  uint64_t keep_every = 0;           // also those of steps that are multiples of it; 0: none
  std::vector<uint64_t> keep_steps;  // and these
};

// Of committed steps, ascending, those that no rule keeps.
std::vector<uint64_t> steps_to_remove(std::span<const uint64_t> committed,
                                      const RetentionRule& rule);

}  // namespace perdure::checkpoint
