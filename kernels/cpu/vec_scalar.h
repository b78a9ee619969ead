#pragma once
// One float at a time: for machines without AVX2. See vec.h.

#include <cmath>

#include "kernels/cpu/vec.h"

namespace perdure::kernels::cpu {

struct Scalar {
  static constexpr int kLanes = 1;
  static constexpr int kTileRows = 4;
  static constexpr int kTileVectors = 2;
  using F = float;

  static F zero() { return 0.0f; }
  static F set(float x) { return x; }
  static F load(const float* p, Full) { return *p; }
  static F load(const float* p, Part) { return *p; }
  static F load(const BF16* p, Full) { return p->to_float(); }
  static F load(const BF16* p, Part) { return p->to_float(); }
  static void store(float* p, F x, Full) { *p = x; }
  static void store(float* p, F x, Part) { *p = x; }
  static void store(BF16* p, F x, Full) { *p = BF16::from_float(x); }
  static void store(BF16* p, F x, Part) { *p = BF16::from_float(x); }
  static F keep(F x, Full) { return x; }
  static F keep(F x, Part) { return x; }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max(F a, F b) { return a > b ? a : b; }
  static F min(F a, F b) { return a < b ? a : b; }
  static F sqrt(F a) { return std::sqrt(a); }
  static F round(F x) { return std::nearbyintf(x); }
  static F scale(F x, F n) { return n == n ? std::ldexp(x, static_cast<int>(n)) : n; }
  // x = mantissa * 2^exponent, mantissa in [0.70.., 1.41..); x positive and normal.
  static F split(F x, F* exponent) {
    int e = 0;
    float m = std::frexp(x, &e);
    if (m < 0.70710678f) {
      m *= 2.0f;
      --e;
    }
    *exponent = static_cast<float>(e);
    return m;
  }
  static float sum(F x) { return x; }
  static float largest(F x) { return x; }
  static void transpose(const F* rows, float* out, int64_t) { *out = *rows; }

  static constexpr bool kHasWide = false;
  static constexpr bool kHasFixed64 = false;
};

}  // namespace perdure::kernels::cpu
