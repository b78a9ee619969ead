#pragma once
// AVX-512 (F, BW, DQ, VL), 16 floats. See vec.h.

#include <immintrin.h>

#include "kernels/cpu/vec.h"

namespace perdure::kernels::cpu {

struct Avx512 {
  static constexpr int kLanes = 16;
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 4;
  using F = __m512;

  static __mmask16 lanes(Part part) { return static_cast<__mmask16>((1u << part.count) - 1u); }
  static F widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  // Round to nearest even; NaN stays NaN. (The instruction for it would flush small numbers to
  // zero.)
  static __m256i narrow(F x) {
    const __m512i u = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, bias), 16);
    const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
  }

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p, Full) { return _mm512_loadu_ps(p); }
  static F load(const float* p, Part part) { return _mm512_maskz_loadu_ps(lanes(part), p); }
  static F load(const BF16* p, Full) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static F load(const BF16* p, Part part) {
    return widen(_mm256_maskz_loadu_epi16(lanes(part), p));
  }
  static void store(float* p, F x, Full) { _mm512_storeu_ps(p, x); }
  static void store(float* p, F x, Part part) { _mm512_mask_storeu_ps(p, lanes(part), x); }
  static void store(BF16* p, F x, Full) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x));
  }
  static void store(BF16* p, F x, Part part) {
    _mm256_mask_storeu_epi16(p, lanes(part), narrow(x));
  }
  static F keep(F x, Full) { return x; }
  static F keep(F x, Part part) { return _mm512_maskz_mov_ps(lanes(part), x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }
  static F sqrt(F a) { return _mm512_sqrt_ps(a); }
  static F round(F x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
  static F scale(F x, F n) { return _mm512_scalef_ps(x, n); }
  static F split(F x, F* exponent) {
    const __m512i u = _mm512_castps_si512(x);
    // Subtracting the bits of sqrt(1/2) puts the border between exponents there.
    const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(u, _mm512_set1_epi32(0x3f3504f3)), 23);
    *exponent = _mm512_cvtepi32_ps(e);
    return _mm512_castsi512_ps(_mm512_sub_epi32(u, _mm512_slli_epi32(e, 23)));
  }
  static __m256 upper_half(F x) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
  }
  static float sum(F x) {
    const __m256 w = _mm256_add_ps(_mm512_castps512_ps256(x), upper_half(x));
    __m128 v = _mm_add_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  static float largest(F x) {
    const __m256 w = _mm256_max_ps(_mm512_castps512_ps256(x), upper_half(x));
    __m128 v = _mm_max_ps(_mm256_castps256_ps128(w), _mm256_extractf128_ps(w, 1));
    v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_max_ss(v, _mm_shuffle_ps(v, v, 1)));
  }
  // out[c * stride + r] = rows[r][c]: 32-bit, then 64-bit pairs, then 128-bit blocks are exchanged.
  static void transpose(const F* rows, float* out, int64_t stride) {
    F a[16];
    F b[16];
    for (int i = 0; i < 16; i += 2) {
      a[i] = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
      a[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
      b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
      b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
      b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      const F even_low = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88);
      const F odd_low = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd);
      const F even_high = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88);
      const F odd_high = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
      _mm512_storeu_ps(out + i * stride, _mm512_shuffle_f32x4(even_low, even_high, 0x88));
      _mm512_storeu_ps(out + (i + 4) * stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
      _mm512_storeu_ps(out + (i + 8) * stride, _mm512_shuffle_f32x4(even_low, even_high, 0xdd));
      _mm512_storeu_ps(out + (i + 12) * stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd));
    }
  }

  // Eight doubles at a time, for gradients.
  static constexpr bool kHasWide = true;
  static constexpr bool kHasFixed64 = true;
  static constexpr int kWideLanes = 8;
  using D = __m512d;
  static D wide_set(double x) { return _mm512_set1_pd(x); }
  static D wide_load(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
  static D wide_load(const int32_t* p) {
    return _mm512_cvtepi32_pd(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static D wide_load(const int64_t* p) { return _mm512_cvtepi64_pd(_mm512_loadu_si512(p)); }
  static D wide_mul(D a, D b) { return _mm512_mul_pd(a, b); }
  static D wide_fma(D a, D b, D c) { return _mm512_fmadd_pd(a, b, c); }
  static void wide_store(float* p, D x) { _mm256_storeu_ps(p, _mm512_cvtpd_ps(x)); }
  static double wide_sum(D x) {
    const __m256d w = _mm256_add_pd(_mm512_castpd512_pd256(x), _mm512_extractf64x4_pd(x, 1));
    const __m128d v = _mm_add_pd(_mm256_castpd256_pd128(w), _mm256_extractf128_pd(w, 1));
    return _mm_cvtsd_f64(_mm_add_sd(v, _mm_unpackhi_pd(v, v)));
  }

  // Fixed point, see kernels_gradient.h.
  struct Fixed32 {
    __m512i largest;
    __mmask16 overflow;
    __mmask16 non_finite;
  };
  static Fixed32 fixed32_begin() { return {_mm512_setzero_si512(), 0, 0}; }
  static void fixed32_step(F x, F scaled, int32_t* accumulator, int32_t limit, Fixed32* state) {
    const __m512i bits = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    const __mmask16 bad = _mm512_cmpgt_epi32_mask(bits, _mm512_set1_epi32(0x7f7fffff));
    const __mmask16 good = static_cast<__mmask16>(~bad);
    state->largest = _mm512_mask_max_epi32(state->largest, good, state->largest, bits);
    const __m512i q =
        _mm512_cvtps_epi32(scaled);  // 0x80000000 when it does not fit: over any limit
    const __mmask16 over = _mm512_cmpgt_epu32_mask(_mm512_abs_epi32(q), _mm512_set1_epi32(limit));
    state->non_finite = static_cast<__mmask16>(state->non_finite | bad);
    state->overflow = static_cast<__mmask16>(state->overflow | (over & good));
    const auto fits = static_cast<__mmask16>(good & ~over);
    const __m512i before = _mm512_loadu_si512(accumulator);
    _mm512_storeu_si512(accumulator, _mm512_mask_add_epi32(before, fits, before, q));
  }
  static int32_t fixed32_largest(const Fixed32& state) {
    return _mm512_reduce_max_epi32(state.largest);
  }
  static void fixed64_step(const float* g, int64_t* accumulator, D scale, int64_t limit,
                           Fixed32* state) {
    const __m256 x = _mm256_loadu_ps(g);
    const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
    const __mmask8 bad = _mm256_cmpgt_epi32_mask(bits, _mm256_set1_epi32(0x7f7fffff));
    const __mmask8 good = static_cast<__mmask8>(~bad);
    const __m512i wide_bits = _mm512_castsi256_si512(bits);
    state->largest = _mm512_mask_max_epi32(state->largest, good, state->largest, wide_bits);
    const __m512i q = _mm512_cvtpd_epi64(_mm512_mul_pd(_mm512_cvtps_pd(x), scale));
    const __mmask8 over = _mm512_cmpgt_epu64_mask(_mm512_abs_epi64(q), _mm512_set1_epi64(limit));
    state->non_finite = static_cast<__mmask16>(state->non_finite | bad);
    state->overflow = static_cast<__mmask16>(state->overflow | (over & good));
    const auto fits = static_cast<__mmask8>(good & ~over);
    const __m512i before = _mm512_loadu_si512(accumulator);
    _mm512_storeu_si512(accumulator, _mm512_mask_add_epi64(before, fits, before, q));
  }
  static bool fixed32_overflow(const Fixed32& state) { return state.overflow != 0; }
  static bool fixed32_non_finite(const Fixed32& state) { return state.non_finite != 0; }
};

}  // namespace perdure::kernels::cpu
