#pragma once
// What a vector type V offers, so that each kernel is written once and compiled per instruction
// set:
//
//   V::kLanes            floats in one register; V::kTileRows x V::kTileVectors registers form a
//   product tile V::F                 a register of floats load/store(p, span)  float or BF16
//   memory, any alignment; Full{} = all lanes, Part{n} = the first n,
//                        where a partial load gives 0 in the other lanes and a partial store leaves
//                        memory alone
//   keep(x, span)        0 in the lanes outside the span
//   fma(a, b, c)         a * b + c; one rounding where the machine has it
//   max(a, b), min(a, b) b when either is NaN
//   round, scale(x, n)   to nearest even; x * 2^n for integral n
//   sum, largest         over the lanes, in a fixed order
//
// Every reduction runs lane by lane in ascending order, then over the lanes in the fixed order of
// sum(). So bits depend on kLanes and on the presence of FMA, that is on the instruction set, and
// on nothing else.
//
// The files isa_*.cc are compiled with the flags of their instruction set. What they include must
// not emit inline functions that other files share (they would carry the wrong instructions):
// everything here is a template on V or has internal linkage.

#include <cstdint>

#include "kernels/dtype.h"

namespace perdure::kernels::cpu {

struct Full {};
struct Part {
  int count;
};

// Calls f(offset, span) over [0, count): full registers, then one partial.
template <class V, class Fn>
inline __attribute__((always_inline)) void for_lanes(int64_t count, Fn&& f) {
  int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) f(i, Full{});
  if (i < count) f(i, Part{static_cast<int>(count - i)});
}

template <class V>
constexpr int64_t round_up_to_lanes(int64_t count) {
  return (count + V::kLanes - 1) / V::kLanes * V::kLanes;
}

}  // namespace perdure::kernels::cpu
