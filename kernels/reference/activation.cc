// GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415) and SwiGLU (Shazeer, arXiv
// 2002.05202).

#include <cmath>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {
namespace {

constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)));
}

double gelu_slope(double x) {
  const double t = std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x));
  const double inner = kRootTwoOverPi * (1.0 + 3.0 * kCubic * x * x);
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

}  // namespace

void ReferenceOps::gelu_forward(Stream&, const Tensor& x, const Tensor& y) {
  check_activation(x, y);
  const int64_t cols = x.shape(x.rank() - 1);
  for (int64_t r = 0; r < row_count(x); ++r) {
    for (int64_t c = 0; c < cols; ++c)
      store(y, row_offset(y, r) + c, gelu(load(x, row_offset(x, r) + c)));
  }
}

void ReferenceOps::gelu_backward(Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_activation(x, dy);
  check_activation(x, dx);
  const int64_t cols = x.shape(x.rank() - 1);
  for (int64_t r = 0; r < row_count(x); ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double slope = gelu_slope(load(x, row_offset(x, r) + c));
      store(dx, row_offset(dx, r) + c, load(dy, row_offset(dy, r) + c) * slope);
    }
  }
}

void ReferenceOps::swiglu_forward(Stream&, const Tensor& x, const Tensor& y) {
  const auto [rows, cols] = check_swiglu(x, y);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double gate = load(x, r * x.stride(0) + c);
      const double up = load(x, r * x.stride(0) + cols + c);
      store(y, r * y.stride(0) + c, gate * sigmoid(gate) * up);
    }
  }
}

void ReferenceOps::swiglu_backward(Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const auto [rows, cols] = check_swiglu(x, dy);
  check_activation(x, dx);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double gate = load(x, r * x.stride(0) + c);
      const double up = load(x, r * x.stride(0) + cols + c);
      const double g = load(dy, r * dy.stride(0) + c);
      const double s = sigmoid(gate);
      store(dx, r * dx.stride(0) + c, g * up * s * (1.0 + gate * (1.0 - s)));
      store(dx, r * dx.stride(0) + cols + c, g * gate * s);
    }
  }
}

}  // namespace perdure::kernels::reference
