// Matrix products: operands become dense doubles first, then one row of the result at a time.

#include <algorithm>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {
namespace {

// out[rows, cols] dense, from x or from its transpose.
void to_dense(const Tensor& x, Transpose transpose, std::vector<double>* out) {
  const int64_t rows = x.shape(0);
  const int64_t cols = x.shape(1);
  out->resize(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const int64_t to = transpose == Transpose::kYes ? c * rows + r : r * cols + c;
      (*out)[static_cast<size_t>(to)] = load(x, r * x.stride(0) + c);
    }
  }
}

// row[n] = a[k] * b[k, n]
void row_times_matrix(const double* a, const double* b, int64_t n, int64_t k, double* row) {
  std::fill(row, row + n, 0.0);
  for (int64_t p = 0; p < k; ++p) {
    for (int64_t j = 0; j < n; ++j) row[j] += a[p] * b[p * n + j];
  }
}

}  // namespace

void ReferenceOps::matmul(Stream&, const MatmulArgs& args) {
  const auto [m, n, k] = check_matmul(args);
  to_dense(args.a, args.transpose_a, &a_);
  to_dense(args.b, args.transpose_b, &b_);
  c_.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    row_times_matrix(a_.data() + i * k, b_.data(), n, k, c_.data());
    for (int64_t j = 0; j < n; ++j) {
      const int64_t at = i * args.c.stride(0) + j;
      double value = c_[static_cast<size_t>(j)];
      if (!args.bias.is_absent()) value += load(args.bias, j);
      if (args.accumulate == Accumulate::kAdd) value += load(args.c, at);
      store(args.c, at, value);
    }
  }
}

void ReferenceOps::weight_gradient(Stream&, const Tensor& dy, const Tensor& x,
                                   const GradSink& sink) {
  const auto [m, n, k] = check_weight_gradient(dy, x, sink);
  to_dense(dy, Transpose::kYes, &a_);
  to_dense(x, Transpose::kNo, &b_);
  c_.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    row_times_matrix(a_.data() + i * k, b_.data(), n, k, c_.data());
    for (int64_t j = 0; j < n; ++j) {
      add_to_sink(static_cast<float>(c_[static_cast<size_t>(j)]), i * n + j, sink);
    }
  }
}

void ReferenceOps::column_sum(Stream&, const Tensor& x, const Tensor& out) {
  const auto [rows, cols] = check_matrix(x);
  check_f32_vector(out, cols);
  for (int64_t c = 0; c < cols; ++c) {
    double sum = 0.0;
    for (int64_t r = 0; r < rows; ++r) sum += load(x, r * x.stride(0) + c);
    store(out, c, sum);
  }
}

}  // namespace perdure::kernels::reference
