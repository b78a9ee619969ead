#pragma once
// Seam: where samples come from. Training asks for samples by their global index, so whoever
// computes a micro-batch reads the same tokens.

#include <cstdint>
#include <span>

namespace perdure::runtime::engine {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Samples [first, first + samples): `context` tokens each, and the tokens that follow them.
  // Deterministic; does not fail: the source was checked when it was opened. Does not allocate.
  virtual void fill(uint64_t first_sample, int64_t samples, std::span<int32_t> tokens,
                    std::span<int32_t> targets) = 0;
};

}  // namespace perdure::runtime::engine
