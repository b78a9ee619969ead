#pragma once
// Where gradients go: a GradSink adds the gradient of one micro-batch (or of one grain of them)
// into an accumulator, in floating point or in fixed point.
//
// Fixed point is what makes training bits independent of the layout (DESIGN section 4): integer
// addition is associative, so it does not matter who adds which micro-batch first. Per block b of
// `block_elements` consecutive elements (row-major flat index i, b = i / block_elements)
//
//     q[i] += round_to_nearest_even(g[i] * 2^exponents[b])
//
// and one addend may be at most `limit` in absolute value. The caller picks `limit` such that the
// sum of all addends of a step, over all workers, cannot wrap. An addend over the limit is added as
// 0 and raises kGradOverflow; a NaN or an infinity likewise raises kGradNonFinite: the step is then
// thrown away. abs_max[b] is raised to the largest |g| seen, whether it fitted or not (non-finite
// values do not count).
//
// kFloat accumulates in f32 in the order of the calls and touches no other field.

#include <atomic>
#include <cstdint>

namespace perdure::kernels {

inline constexpr uint32_t kGradOverflow = 1u;
inline constexpr uint32_t kGradNonFinite = 2u;

enum class GradKind : uint8_t { kFloat, kFixed32, kFixed64 };

struct GradSink {
  GradKind kind = GradKind::kFloat;
  void* accumulator = nullptr;  // float, int32_t or int64_t [elements], dense row-major
  int64_t elements = 0;
  int64_t block_elements = 0;          // a power of two >= 64, or >= elements for one block
  const int16_t* exponents = nullptr;  // [blocks]
  float* abs_max = nullptr;            // [blocks], read and raised
  int64_t limit = 0;                   // largest |q| of one addend
  std::atomic<uint32_t>* flags = nullptr;

  int64_t blocks() const { return (elements + block_elements - 1) / block_elements; }
};

// The part [element_begin, element_begin + element_count) of a sink, as a sink of its own. It must
// begin where a block begins, or lie inside one block: otherwise the parts would not know their
// exponents (CHECK).
GradSink sub_sink(const GradSink& sink, int64_t element_begin, int64_t element_count);

}  // namespace perdure::kernels
