#pragma once
// What this machine can do at best, measured with the libraries that the engine stands on.

#include "kernels/device.h"

namespace perdure::bench {

struct Limits {
  double f32_gflops = 0.0;
  double bf16_gflops = 0.0;
  double gbytes_per_s = 0.0;  // read and written, far beyond the caches
};

Limits measure_limits(kernels::Device& device, int threads);

// The best matrix product in f32 that any library here gives with this many threads: oneDNN's sgemm
// with its own threads, OpenBLAS's if it is installed, and our device, on square and on GPT-2's
// shapes.
double best_sgemm_gflops(kernels::Device& device, int threads);

}  // namespace perdure::bench
