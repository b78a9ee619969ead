// Norms: pieces of rows. The gradients of gamma and beta are summed per piece of kRowsPerPiece
// rows, then over the pieces in ascending order.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {
namespace {

constexpr int64_t kRowsPerPiece = 32;

NormPiece make_piece(const NormArgs& args, int64_t begin, int64_t end) {
  NormPiece piece{};
  piece.rows = end - begin;
  piece.cols = args.x.shape(1);
  piece.x = args.x.as<float>() + begin * args.x.stride(0);
  piece.x_stride = args.x.stride(0);
  piece.gamma = args.gamma.as<float>();
  piece.beta = args.beta.is_absent() ? nullptr : args.beta.as<float>();
  piece.mean = args.mean.is_absent() ? nullptr : args.mean.as<float>() + begin;
  piece.rstd = args.rstd.as<float>() + begin;
  piece.epsilon = args.epsilon;
  return piece;
}

}  // namespace

void CpuOps::norm_forward(const NormArgs& args, NormKind kind) {
  const auto [rows, cols] = check_norm(args, kind);
  const auto kernel = kernels_.norm_forward[type_index(args.y.dtype())];
  for_row_pieces(rows, cols, [&](int64_t begin, int64_t end, int) {
    NormPiece piece = make_piece(args, begin, end);
    piece.y = element(args.y, begin * args.y.stride(0));
    piece.y_stride = args.y.stride(0);
    kernel(piece);
  });
}

void CpuOps::norm_backward(const NormGradArgs& args, NormKind kind) {
  const auto [rows, cols] = check_norm_grad(args, kind);
  const int64_t row_count = rows;
  const int64_t width = cols;
  const int64_t pieces = (rows + kRowsPerPiece - 1) / kRowsPerPiece;
  const Workspace::Scope scope(workspace_);
  auto* dgamma = workspace_.take<float>(pieces * cols);
  float* dbeta = args.dbeta.is_absent() ? nullptr : workspace_.take<float>(pieces * cols);
  const auto kernel = kernels_.norm_backward[type_index(args.dy.dtype())];
  pool_.run(pieces, [&](int64_t index, int) {
    const int64_t begin = index * kRowsPerPiece;
    NormPiece piece = make_piece(args.forward, begin, std::min(row_count, begin + kRowsPerPiece));
    piece.y = element(args.dy, begin * args.dy.stride(0));
    piece.y_stride = args.dy.stride(0);
    piece.dx = args.dx.as<float>() + begin * args.dx.stride(0);
    piece.dx_stride = args.dx.stride(0);
    piece.dgamma = dgamma + index * width;
    piece.dbeta = dbeta == nullptr ? nullptr : dbeta + index * width;
    kernel(piece);
  });
  kernels_.column_sum[0](dgamma, pieces, cols, args.dgamma.as<float>(), cols);
  if (dbeta != nullptr) kernels_.column_sum[0](dbeta, pieces, cols, args.dbeta.as<float>(), cols);
}

void CpuOps::layer_norm_forward(Stream&, const NormArgs& args) {
  norm_forward(args, NormKind::kLayer);
}
void CpuOps::rms_norm_forward(Stream&, const NormArgs& args) { norm_forward(args, NormKind::kRms); }
void CpuOps::layer_norm_backward(Stream&, const NormGradArgs& args) {
  norm_backward(args, NormKind::kLayer);
}
void CpuOps::rms_norm_backward(Stream&, const NormGradArgs& args) {
  norm_backward(args, NormKind::kRms);
}

}  // namespace perdure::kernels::cpu
