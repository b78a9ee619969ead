#pragma once
// AVX2 with FMA, 8 floats. See vec.h.

#include <immintrin.h>

#include "kernels/cpu/vec.h"

namespace perdure::kernels::cpu {

struct Avx2 {
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 2;
  using F = __m256;

  static __m256i lanes(Part part) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(part.count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // Round to nearest even; NaN stays NaN.
  static __m128i narrow(F x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, bias), 16);
    const __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i both = _mm256_blendv_epi8(rounded, quiet, is_nan);
    const __m256i packed = _mm256_packus_epi32(both, both);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p, Full) { return _mm256_loadu_ps(p); }
  static F load(const float* p, Part part) { return _mm256_maskload_ps(p, lanes(part)); }
  static F load(const BF16* p, Full) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F load(const BF16* p, Part part) {
    alignas(16) uint16_t bits[8] = {};
    for (int i = 0; i < part.count; ++i) bits[i] = p[i].bits;
    return widen(_mm_load_si128(reinterpret_cast<const __m128i*>(bits)));
  }
  static void store(float* p, F x, Full) { _mm256_storeu_ps(p, x); }
  static void store(float* p, F x, Part part) { _mm256_maskstore_ps(p, lanes(part), x); }
  static void store(BF16* p, F x, Full) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x));
  }
  static void store(BF16* p, F x, Part part) {
    alignas(16) uint16_t bits[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(bits), narrow(x));
    for (int i = 0; i < part.count; ++i) p[i].bits = bits[i];
  }
  static F keep(F x, Full) { return x; }
  static F keep(F x, Part part) { return _mm256_and_ps(x, _mm256_castsi256_ps(lanes(part))); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }
  static F sqrt(F a) { return _mm256_sqrt_ps(a); }
  static F round(F x) { return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  // In two steps, so that results near the ends of the range are right (n within +-252).
  static F scale(F x, F n) {
    const __m256i whole = _mm256_cvtps_epi32(n);
    const __m256i first = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power(first)), power(_mm256_sub_epi32(whole, first)));
  }
  static F split(F x, F* exponent) {
    const __m256i u = _mm256_castps_si256(x);
    // Subtracting the bits of sqrt(1/2) puts the border between exponents there.
    const __m256i shifted = _mm256_sub_epi32(u, _mm256_set1_epi32(0x3f3504f3));
    const __m256i e = _mm256_srai_epi32(shifted, 23);
    *exponent = _mm256_cvtepi32_ps(e);
    return _mm256_castsi256_ps(_mm256_sub_epi32(u, _mm256_slli_epi32(e, 23)));
  }
  static float sum(F x) {
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  static float largest(F x) {
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  // out[c * stride + r] = rows[r][c]
  static void transpose(const F* rows, float* out, int64_t stride) {
    F a[8];
    F b[8];
    for (int i = 0; i < 8; i += 2) {
      a[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      a[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      _mm256_storeu_ps(out + i * stride, _mm256_permute2f128_ps(b[i], b[i + 4], 0x20));
      _mm256_storeu_ps(out + (i + 4) * stride, _mm256_permute2f128_ps(b[i], b[i + 4], 0x31));
    }
  }

  // Four doubles at a time, for gradients.
  static constexpr bool kHasWide = true;
  static constexpr bool kHasFixed64 = false;
  static constexpr int kWideLanes = 4;
  using D = __m256d;
  static D wide_set(double x) { return _mm256_set1_pd(x); }
  static D wide_load(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  static D wide_load(const int32_t* p) {
    return _mm256_cvtepi32_pd(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static D wide_load(const int64_t* p) {
    return _mm256_setr_pd(static_cast<double>(p[0]), static_cast<double>(p[1]),
                          static_cast<double>(p[2]), static_cast<double>(p[3]));
  }
  static D wide_mul(D a, D b) { return _mm256_mul_pd(a, b); }
  static D wide_fma(D a, D b, D c) { return _mm256_fmadd_pd(a, b, c); }
  static void wide_store(float* p, D x) { _mm_storeu_ps(p, _mm256_cvtpd_ps(x)); }
  static double wide_sum(D x) {
    const __m128d v = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v)));
  }

  // Fixed point, see kernels_gradient.h. Returns the flags of these lanes and raises *largest_bits.
  struct Fixed32 {
    __m256i largest;
    __m256i overflow;
    __m256i non_finite;
  };
  static Fixed32 fixed32_begin() {
    return {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  static void fixed32_step(F x, F scaled, int32_t* accumulator, int32_t limit, Fixed32* state) {
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
    const __m256i bad = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x7f7fffff));
    state->largest = _mm256_max_epi32(state->largest, _mm256_andnot_si256(bad, bits));
    const __m256i q = _mm256_cvtps_epi32(scaled);  // 0x80000000 when it does not fit
    const __m256i over =
        _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_abs_epi32(q), _mm256_set1_epi32(limit)),
                        _mm256_cmpeq_epi32(q, _mm256_set1_epi32(INT32_MIN)));
    state->non_finite = _mm256_or_si256(state->non_finite, bad);
    state->overflow = _mm256_or_si256(state->overflow, _mm256_andnot_si256(bad, over));
    auto* at = reinterpret_cast<__m256i*>(accumulator);
    const __m256i addend = _mm256_andnot_si256(_mm256_or_si256(bad, over), q);
    _mm256_storeu_si256(at, _mm256_add_epi32(_mm256_loadu_si256(at), addend));
  }
  static int32_t fixed32_largest(const Fixed32& state) {
    alignas(32) int32_t lane[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane), state.largest);
    int32_t most = 0;
    for (const int32_t value : lane) most = value > most ? value : most;
    return most;
  }
  static bool fixed32_overflow(const Fixed32& s) {
    return !_mm256_testz_si256(s.overflow, s.overflow);
  }
  static bool fixed32_non_finite(const Fixed32& s) {
    return !_mm256_testz_si256(s.non_finite, s.non_finite);
  }

 private:
  static F power(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

}  // namespace perdure::kernels::cpu
