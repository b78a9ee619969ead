#pragma once
// Timing and operands for the benchmarks of kernels/.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/host_memory.h"
#include "kernels/tensor.h"

namespace perdure::bench {

// kWall is what users wait for. kCpu counts the CPU seconds of the process, divided by its threads:
// what the wall clock would show if the cores were not shared with other programs.
enum class Clock { kWall, kCpu };
struct ClockOptions {
  Clock clock = Clock::kWall;
  int threads = 1;
};
double now_seconds(const ClockOptions& options = {});

struct Timing {
  double best_seconds = 1e30;
  double median_seconds = 0.0;
  // The best by the wall clock; the median by CPU time, which the system counts with some delay.
  double seconds(const ClockOptions& options) const {
    return options.clock == Clock::kWall ? best_seconds : median_seconds;
  }
};

// Runs f for a quarter of a second, at least 5 times, after one run that does not count.
template <typename Fn>
Timing measure(Fn&& f, const ClockOptions& clock = {}) {
  f();
  std::vector<double> times;
  const double end = now_seconds() + 0.25;
  while (times.size() < 5 || (now_seconds() < end && times.size() < 2000)) {
    const double begin = now_seconds(clock);
    f();
    times.push_back(now_seconds(clock) - begin);
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

// Hands out filled tensors that live as long as it does.
class Operands {
 public:
  kernels::Tensor matrix(kernels::DType dtype, int64_t rows, int64_t cols);
  kernels::Tensor vector(kernels::DType dtype, int64_t size);
  kernels::Tensor tokens(int64_t rows, int64_t vocabulary);

 private:
  std::byte* allocate(size_t bytes);
  std::vector<kernels::HostRegion> regions_;
  uint32_t random_ = 1;
};

}  // namespace perdure::bench
