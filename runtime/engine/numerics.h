#pragma once
// The numbers part of a job: how gradients are summed, and how the exponents of fixed point follow
// the gradients. Pure: every rank that holds a tensor computes the same scales from the same
// reduced maxima.

#include <cstdint>
#include <span>

#include "kernels/gradient.h"

namespace perdure::runtime::engine {

enum class SumMode : uint8_t {
  kExact,  // fixed point: bits do not depend on the layout
  kFast,   // floating point: deterministic for one layout
};

struct Numerics {
  SumMode mode = SumMode::kExact;
  uint32_t width_bits = 64;  // 32 or 64, exact only
  int64_t block_elements =
      0;               // elements that share an exponent, a power of two >= 64; 0: one per tensor
  uint32_t grain = 1;  // consecutive micro-batches summed in f32 before the conversion

  kernels::GradKind grad_kind() const;
  int64_t accumulator_bytes() const;
};

// Bits that a gradient may grow from one step to the next before the step has to run again.
int headroom_bits(uint32_t width_bits);

// The largest |q| of one addend such that `addends` of them cannot wrap a signed integer of this
// width.
int64_t addend_limit(uint32_t width_bits, uint32_t addends);

// The largest e with abs_max * 2^(e + headroom) <= limit, kept within what f32 scaling can do.
// abs_max 0: the largest exponent.
int16_t exponent_for(float abs_max, int64_t limit, int headroom);

// Follows one tensor. All spans have one element per block.
struct ScaleSpans {
  std::span<int16_t> exponents;
  std::span<float> tracked;        // recent maximum of |addend|, decaying
  std::span<const float> abs_max;  // of this step, reduced over all holders
};

// After a committed step. A block's tracked maximum halves per step unless it is reached again; a
// quiet block is scaled as if it were 2^-kQuietBits of the tensor's maximum, so that it may wake up
// without an overflow.
void advance_scale(const ScaleSpans& scale, int64_t limit, int headroom);

// After an attempt that did not fit: the observed maxima, which the re-run meets again exactly,
// decide.
void recalibrate_scale(const ScaleSpans& scale, int64_t limit, int headroom);

inline constexpr int kQuietBits = 6;

}  // namespace perdure::runtime::engine
