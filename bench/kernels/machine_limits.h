#pragma once
// What this machine can do at most, measured in the same run as what is compared with it.

#include "bench/kernels/bench_support.h"

namespace perdure::bench {

// GFLOP/s of f32 fused multiply-adds that are independent and in registers.
double measure_fma_peak_gflops(int threads, const ClockOptions& clock = {});

// GB/s of reading and writing arrays much larger than the caches: y[i] += x[i], 12 bytes an
// element.
double measure_memory_gbytes(int threads, const ClockOptions& clock = {});

}  // namespace perdure::bench
