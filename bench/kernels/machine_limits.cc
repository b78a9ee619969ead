// Needs AVX-512 for the peak; on other machines the peak of plain code is reported. Compiled with
// AVX-512 flags, so nothing here may run before the check.

#include "bench/kernels/machine_limits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace perdure::bench {
namespace {

volatile float g_sink;

#if defined(__x86_64__)
// Twelve chains hide the latency of the multiply-add.
double fma_chains(long rounds) {
  __m512 a = _mm512_set1_ps(0.1f), b = _mm512_set1_ps(0.2f), c = _mm512_set1_ps(0.3f);
  __m512 d = _mm512_set1_ps(0.4f), e = _mm512_set1_ps(0.5f), f = _mm512_set1_ps(0.6f);
  __m512 g = _mm512_set1_ps(0.7f), h = _mm512_set1_ps(0.8f), i = _mm512_set1_ps(0.9f);
  __m512 j = _mm512_set1_ps(1.1f), k = _mm512_set1_ps(1.2f), l = _mm512_set1_ps(1.3f);
  const __m512 x = _mm512_set1_ps(0.999f);
  const __m512 y = _mm512_set1_ps(0.001f);
  for (long r = 0; r < rounds; ++r) {
    a = _mm512_fmadd_ps(a, x, y);
    b = _mm512_fmadd_ps(b, x, y);
    c = _mm512_fmadd_ps(c, x, y);
    d = _mm512_fmadd_ps(d, x, y);
    e = _mm512_fmadd_ps(e, x, y);
    f = _mm512_fmadd_ps(f, x, y);
    g = _mm512_fmadd_ps(g, x, y);
    h = _mm512_fmadd_ps(h, x, y);
    i = _mm512_fmadd_ps(i, x, y);
    j = _mm512_fmadd_ps(j, x, y);
    k = _mm512_fmadd_ps(k, x, y);
    l = _mm512_fmadd_ps(l, x, y);
  }
  const __m512 s = _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(a, b), _mm512_add_ps(c, d)),
                                 _mm512_add_ps(_mm512_add_ps(e, f), _mm512_add_ps(g, h)));
  g_sink = _mm512_reduce_add_ps(
      _mm512_add_ps(s, _mm512_add_ps(_mm512_add_ps(i, j), _mm512_add_ps(k, l))));
  return 12.0 * 32.0 * static_cast<double>(rounds);
}
bool has_avx512() { return __builtin_cpu_supports("avx512f"); }
#else
double fma_chains(long) { return 0.0; }
bool has_avx512() { return false; }
#endif

// Runs f on all threads at once; best time of a few.
template <typename Fn>
double best_time(int threads, const ClockOptions& clock, Fn&& f) {
  double best = 1e30;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<std::thread> others;
    const double begin = now_seconds(clock);
    for (int t = 1; t < threads; ++t) others.emplace_back([&f, t] { f(t); });
    f(0);
    for (std::thread& other : others) other.join();
    best = std::min(best, now_seconds(clock) - begin);
  }
  return best;
}

}  // namespace

double measure_fma_peak_gflops(int threads, const ClockOptions& clock) {
  if (!has_avx512()) return 0.0;
  constexpr long kRounds = 4000000;
  const double time = best_time(threads, clock, [](int) { fma_chains(kRounds); });
  return 12.0 * 32.0 * kRounds * threads / time * 1e-9;
}

double measure_memory_gbytes(int threads, const ClockOptions& clock) {
  constexpr size_t kElements = size_t{16} << 20;
  std::vector<std::vector<float>> x(static_cast<size_t>(threads),
                                    std::vector<float>(kElements, 1.0f));
  std::vector<std::vector<float>> y = x;
  const double time = best_time(threads, clock, [&](int t) {
    float* to = y[static_cast<size_t>(t)].data();
    const float* from = x[static_cast<size_t>(t)].data();
    for (size_t i = 0; i < kElements; ++i) to[i] += from[i];
  });
  return 12.0 * static_cast<double>(kElements) * threads / time * 1e-9;
}

}  // namespace perdure::bench
