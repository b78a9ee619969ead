#include "bench/kernels/bench_support.h"

#include <ctime>

namespace perdure::bench {

using kernels::BF16;
using kernels::DType;
using kernels::Tensor;

double now_seconds(const ClockOptions& options) {
  timespec now{};
  ::clock_gettime(options.clock == Clock::kWall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &now);
  const double seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
  return options.clock == Clock::kWall ? seconds : seconds / options.threads;
}

std::byte* Operands::allocate(size_t bytes) {
  auto region = kernels::HostRegion::make(bytes);
  CHECK(region.is_ok()) << region.status();
  regions_.push_back(std::move(region).value());
  return regions_.back().data();
}

Tensor Operands::matrix(DType dtype, int64_t rows, int64_t cols) {
  const Tensor x = Tensor::matrix(allocate(static_cast<size_t>(rows * cols) * size_bytes(dtype)),
                                  dtype, rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    random_ = random_ * 1664525u + 1013904223u;
    const float value =
        static_cast<float>(static_cast<int32_t>(random_ >> 9) - (1 << 22)) * 0x1p-24f;
    if (dtype == DType::kF32) x.as<float>()[i] = value;
    if (dtype == DType::kBF16) x.as<BF16>()[i] = BF16::from_float(value);
    if (dtype == DType::kF64) x.as<double>()[i] = static_cast<double>(value);
  }
  return x;
}

Tensor Operands::vector(DType dtype, int64_t size) {
  return Tensor::vector(matrix(dtype, 1, size).data(), dtype, size);
}

Tensor Operands::tokens(int64_t rows, int64_t vocabulary) {
  const Tensor x = Tensor::vector(allocate(static_cast<size_t>(rows) * 4), DType::kI32, rows);
  for (int64_t r = 0; r < rows; ++r) {
    random_ = random_ * 1664525u + 1013904223u;
    x.as<int32_t>()[r] = static_cast<int32_t>((random_ >> 8) % static_cast<uint32_t>(vocabulary));
  }
  return x;
}

}  // namespace perdure::bench
