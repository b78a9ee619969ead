#pragma once
// Elements as double, whatever they are stored as.

#include "kernels/tensor.h"

namespace perdure::kernels::reference {

inline double load(const Tensor& x, int64_t offset) {
  const auto i = static_cast<size_t>(offset);
  switch (x.dtype()) {
    case DType::kF32:
      return static_cast<const float*>(x.data())[i];
    case DType::kBF16:
      return static_cast<double>(static_cast<const BF16*>(x.data())[i].to_float());
    case DType::kF64:
      return static_cast<const double*>(x.data())[i];
    case DType::kI32:
      return static_cast<const int32_t*>(x.data())[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(x.data())[i]);
  }
  return 0;
}

// For floating-point tensors.
inline void store(const Tensor& x, int64_t offset, double value) {
  const auto i = static_cast<size_t>(offset);
  switch (x.dtype()) {
    case DType::kF32:
      static_cast<float*>(x.data())[i] = static_cast<float>(value);
      return;
    case DType::kBF16:
      static_cast<BF16*>(x.data())[i] = BF16::from_float(static_cast<float>(value));
      return;
    case DType::kF64:
      static_cast<double*>(x.data())[i] = value;
      return;
    default:
      CHECK(false) << "cannot store into " << to_string(x.dtype());
  }
}

}  // namespace perdure::kernels::reference
