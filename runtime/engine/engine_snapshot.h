#pragma once
// A copy of committed state in host memory: what a step moves from k to k + 1, together.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"

namespace perdure::runtime::engine {

struct TensorSnapshot {
  std::vector<float> param, m, v;
  std::vector<int16_t> exponents;
  std::vector<float> tracked;
};

struct EngineSnapshot {
  base::Step step;
  uint64_t samples_consumed = 0;  // the data cursor
  uint64_t applied_steps = 0;     // optimizer steps; fewer than `step` when steps were skipped
  bool calibrated = false;        // exponents are valid
  uint32_t skipped_in_a_row = 0;  // newest steps that were committed without the optimizer
  std::map<std::string, TensorSnapshot> tensors;  // by name
};

}  // namespace perdure::runtime::engine
