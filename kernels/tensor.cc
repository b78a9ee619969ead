#include "kernels/tensor.h"

#include <sstream>

namespace perdure::kernels {

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

Tensor Tensor::dense(void* data, DType dtype, std::initializer_list<int64_t> shape) {
  CHECK(shape.size() >= 1 && shape.size() <= static_cast<size_t>(kRankMax));
  Tensor t;
  t.data_ = data;
  t.dtype_ = dtype;
  t.rank_ = static_cast<int>(shape.size());
  size_t dim = 0;
  for (const int64_t extent : shape) {
    CHECK_GE(extent, 0);
    t.shape_[dim++] = extent;
  }
  int64_t stride = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    t.stride_[d] = stride;
    stride *= t.shape_[d];
  }
  return t;
}

Tensor Tensor::matrix(void* data, DType dtype, int64_t rows, int64_t cols, int64_t row_stride) {
  CHECK_GE(row_stride, cols);
  Tensor t = dense(data, dtype, {rows, cols});
  t.stride_[0] = row_stride;
  return t;
}

int64_t Tensor::elements() const {
  int64_t count = rank_ == 0 ? 0 : 1;
  for (int d = 0; d < rank_; ++d) count *= shape_[static_cast<size_t>(d)];
  return count;
}

bool Tensor::is_dense() const {
  int64_t expected = 1;
  for (size_t d = static_cast<size_t>(rank_); d-- > 0;) {
    if (shape_[d] > 1 && stride_[d] != expected) return false;
    expected *= shape_[d];
  }
  return true;
}

Tensor Tensor::columns(int64_t begin, int64_t count) const {
  CHECK_EQ(rank_, 2);
  CHECK(begin >= 0 && count >= 0 && begin + count <= shape_[1]);
  auto* at = static_cast<std::byte*>(data_) + static_cast<size_t>(begin) * size_bytes(dtype_);
  return matrix(at, dtype_, shape_[0], count, stride_[0]);
}

Tensor Tensor::rows(int64_t begin, int64_t count) const {
  CHECK_EQ(rank_, 2);
  CHECK(begin >= 0 && count >= 0 && begin + count <= shape_[0]);
  auto* at =
      static_cast<std::byte*>(data_) + static_cast<size_t>(begin * stride_[0]) * size_bytes(dtype_);
  return matrix(at, dtype_, count, shape_[1], stride_[0]);
}

Tensor Tensor::as_heads(int64_t batch, int64_t time, int64_t heads, int64_t head_size) const {
  CHECK_EQ(rank_, 2);
  CHECK_EQ(batch * time, shape_[0]);
  CHECK_EQ(heads * head_size, shape_[1]);
  Tensor t = dense(data_, dtype_, {batch, time, heads, head_size});
  t.stride_[1] = stride_[0];
  t.stride_[0] = stride_[0] * time;
  return t;
}

std::string Tensor::to_string() const {
  if (is_absent()) return "absent";
  std::ostringstream out;
  out << kernels::to_string(dtype_) << "[";
  for (int d = 0; d < rank_; ++d) out << (d ? ", " : "") << shape(d);
  out << "] stride [";
  for (int d = 0; d < rank_; ++d) out << (d ? ", " : "") << stride(d);
  out << "]";
  return out.str();
}

}  // namespace perdure::kernels
