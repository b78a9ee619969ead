#pragma once
// Tensor: a view of memory that somebody else owns, with element type, shape and strides (in
// elements). The last dimension is always contiguous. A default-made Tensor is "absent" and stands
// for an optional operand that is not there.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "kernels/dtype.h"

namespace perdure::kernels {

class Tensor {
 public:
  static constexpr int kRankMax = 4;

  Tensor() = default;

  // Row-major and dense.
  static Tensor dense(void* data, DType dtype, std::initializer_list<int64_t> shape);
  // shape [rows, cols] whose rows lie row_stride elements apart.
  static Tensor matrix(void* data, DType dtype, int64_t rows, int64_t cols, int64_t row_stride);
  static Tensor matrix(void* data, DType dtype, int64_t rows, int64_t cols) {
    return matrix(data, dtype, rows, cols, cols);
  }
  static Tensor vector(void* data, DType dtype, int64_t size) { return dense(data, dtype, {size}); }

  bool is_absent() const { return data_ == nullptr; }
  void* data() const { return data_; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t shape(int dim) const {
    CHECK(dim >= 0 && dim < rank_);
    return shape_[static_cast<size_t>(dim)];
  }
  int64_t stride(int dim) const {
    CHECK(dim >= 0 && dim < rank_);
    return stride_[static_cast<size_t>(dim)];
  }
  int64_t elements() const;
  bool is_dense() const;

  // Data as T*; T must be the element type.
  template <typename T>
  T* as() const {
    CHECK(dtype_ == dtype_of<T>()) << "tensor is " << kernels::to_string(dtype_);
    return static_cast<T*>(data_);
  }

  // [rows, cols] out of a matrix: columns [begin, begin + count), same rows.
  Tensor columns(int64_t begin, int64_t count) const;
  // Rows [begin, begin + count).
  Tensor rows(int64_t begin, int64_t count) const;
  // A matrix [batch * time, heads * head_size (and more)] seen as [batch, time, heads, head_size].
  Tensor as_heads(int64_t batch, int64_t time, int64_t heads, int64_t head_size) const;

  std::string to_string() const;  // "bf16[4, 64] stride [192, 1]"

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<int64_t, kRankMax> shape_{};
  std::array<int64_t, kRankMax> stride_{};
};

}  // namespace perdure::kernels
