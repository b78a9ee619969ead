// LayerNorm (Ba et al., arXiv 1607.06450) and RMSNorm (Zhang and Sennrich, arXiv 1910.07467).

#include <cmath>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {

void ReferenceOps::norm_forward(const NormArgs& args, NormKind kind) {
  const auto [rows, cols] = check_norm(args, kind);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t x = r * args.x.stride(0);
    double mean = 0.0;
    if (kind == NormKind::kLayer) {
      for (int64_t c = 0; c < cols; ++c) mean += load(args.x, x + c);
      mean /= static_cast<double>(cols);
    }
    double variance = 0.0;
    for (int64_t c = 0; c < cols; ++c) {
      const double d = load(args.x, x + c) - mean;
      variance += d * d;
    }
    const double rstd = 1.0 / std::sqrt(variance / static_cast<double>(cols) + args.epsilon);
    if (kind == NormKind::kLayer) store(args.mean, r, mean);
    store(args.rstd, r, rstd);
    for (int64_t c = 0; c < cols; ++c) {
      const double beta = args.beta.is_absent() ? 0.0 : load(args.beta, c);
      const double value = (load(args.x, x + c) - mean) * rstd * load(args.gamma, c) + beta;
      store(args.y, r * args.y.stride(0) + c, value);
    }
  }
}

// With n = (x - mean) rstd and g = dy gamma:  dx += rstd (g - average(g) - n average(g n)), where
// RMSNorm has no average(g);  dgamma = sum of dy n;  dbeta = sum of dy.
void ReferenceOps::norm_backward(const NormGradArgs& args, NormKind kind) {
  const auto [rows, cols] = check_norm_grad(args, kind);
  const NormArgs& forward = args.forward;
  a_.assign(static_cast<size_t>(cols), 0.0);
  b_.assign(static_cast<size_t>(cols), 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    const double mean = kind == NormKind::kLayer ? load(forward.mean, r) : 0.0;
    const double rstd = load(forward.rstd, r);
    const int64_t x = r * forward.x.stride(0);
    const int64_t dy = r * args.dy.stride(0);
    double sum_g = 0.0;
    double sum_gn = 0.0;
    for (int64_t c = 0; c < cols; ++c) {
      const double n = (load(forward.x, x + c) - mean) * rstd;
      const double g = load(args.dy, dy + c) * load(forward.gamma, c);
      sum_g += g;
      sum_gn += g * n;
      a_[static_cast<size_t>(c)] += load(args.dy, dy + c) * n;
      b_[static_cast<size_t>(c)] += load(args.dy, dy + c);
    }
    const double average_g = kind == NormKind::kLayer ? sum_g / static_cast<double>(cols) : 0.0;
    const double average_gn = sum_gn / static_cast<double>(cols);
    for (int64_t c = 0; c < cols; ++c) {
      const double n = (load(forward.x, x + c) - mean) * rstd;
      const double g = load(args.dy, dy + c) * load(forward.gamma, c);
      const int64_t at = r * args.dx.stride(0) + c;
      store(args.dx, at, load(args.dx, at) + rstd * (g - average_g - n * average_gn));
    }
  }
  for (int64_t c = 0; c < cols; ++c) {
    store(args.dgamma, c, a_[static_cast<size_t>(c)]);
    if (!args.dbeta.is_absent()) store(args.dbeta, c, b_[static_cast<size_t>(c)]);
  }
}

void ReferenceOps::layer_norm_forward(Stream&, const NormArgs& args) {
  norm_forward(args, NormKind::kLayer);
}
void ReferenceOps::rms_norm_forward(Stream&, const NormArgs& args) {
  norm_forward(args, NormKind::kRms);
}
void ReferenceOps::layer_norm_backward(Stream&, const NormGradArgs& args) {
  norm_backward(args, NormKind::kLayer);
}
void ReferenceOps::rms_norm_backward(Stream&, const NormGradArgs& args) {
  norm_backward(args, NormKind::kRms);
}

}  // namespace perdure::kernels::reference
