#pragma once
// Element-wise combination of two arrays. All but kSumF32 are associative and commutative: their
// result does not depend on ring, tree or order of arrival.

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::runtime::collective {

enum class ReduceOp : uint8_t {
  kSumI32,
  kSumI64,
  kSumF32,
  kMaxF32,
  kSumU64,
  kMaxU64,
  kSumThenMax,  // u64: word 0 says how many words after it are summed; the rest are maxima. Whole
                // arrays only.
};

size_t element_bytes(ReduceOp op);

// into[i] = into[i] op from[i]. Equal sizes, a multiple of the element; both aligned to it.
void combine(ReduceOp op, std::span<std::byte> into, std::span<const std::byte> from);

}  // namespace perdure::runtime::collective
