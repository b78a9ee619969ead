#pragma once
// Hands out parts of one device buffer, in order, each on a 64-byte border.

#include <cstddef>
#include <span>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace perdure::runtime::engine {

class MemoryCarver {
 public:
  explicit MemoryCarver(kernels::DeviceBuffer& buffer) : buffer_(buffer) {}

  // CHECKs that it fits: what is carved was planned with the same arithmetic.
  std::span<std::byte> take(size_t bytes) {
    const size_t padded = (bytes + 63) / 64 * 64;
    CHECK_LE(used_ + padded, buffer_.size_bytes()) << "the memory plan was too small";
    std::byte* at = buffer_.data() + used_;
    used_ += padded;
    return {at, bytes};
  }
  kernels::Tensor matrix(kernels::DType dtype, int64_t rows, int64_t cols) {
    const size_t bytes = static_cast<size_t>(rows * cols) * kernels::size_bytes(dtype);
    return kernels::Tensor::matrix(take(bytes).data(), dtype, rows, cols);
  }
  kernels::Tensor vector(kernels::DType dtype, int64_t size) {
    return kernels::Tensor::vector(
        take(static_cast<size_t>(size) * kernels::size_bytes(dtype)).data(), dtype, size);
  }
  template <typename T>
  std::span<T> array(size_t count) {
    return {reinterpret_cast<T*>(take(count * sizeof(T)).data()), count};
  }
  size_t used_bytes() const { return used_; }

 private:
  kernels::DeviceBuffer& buffer_;
  size_t used_ = 0;
};

}  // namespace perdure::runtime::engine
