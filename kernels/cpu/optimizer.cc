// Gradient sinks, gradient norm and AdamW. Pieces are chunks of elements.

#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {
namespace {

constexpr int64_t kSinkPiece = 32768;
constexpr int64_t kSquaresPiece = 65536;

// Calls f(begin, end, block) for the parts of [begin, end) that lie in one block each.
template <typename Fn>
void for_blocks(const GradSink& sink, int64_t begin, int64_t end, Fn&& f) {
  if (sink.kind == GradKind::kFloat) return f(begin, end, int64_t{0});
  for (int64_t at = begin; at < end;) {
    const int64_t block = at / sink.block_elements;
    const int64_t next = std::min(end, (block + 1) * sink.block_elements);
    f(at, next, block);
    at = next;
  }
}

double sum_squares(const KernelTable& kernels, const GradSink& sink, int64_t begin, int64_t end) {
  double sum = 0.0;
  for_blocks(sink, begin, end, [&](int64_t at, int64_t next, int64_t block) {
    const int64_t n = next - at;
    switch (sink.kind) {
      case GradKind::kFloat:
        sum += kernels.squares_float(static_cast<const float*>(sink.accumulator) + at, n);
        break;
      case GradKind::kFixed32:
        sum += std::ldexp(
            kernels.squares_fixed32(static_cast<const int32_t*>(sink.accumulator) + at, n),
            -2 * sink.exponents[block]);
        break;
      case GradKind::kFixed64:
        sum += std::ldexp(
            kernels.squares_fixed64(static_cast<const int64_t*>(sink.accumulator) + at, n),
            -2 * sink.exponents[block]);
        break;
    }
  });
  return sum;
}

// out = accumulated gradient * multiplier, for elements [begin, end).
void read_gradient(const KernelTable& kernels, const GradSink& sink, int64_t begin, int64_t end,
                   double multiplier, float* out) {
  for_blocks(sink, begin, end, [&](int64_t at, int64_t next, int64_t block) {
    const int64_t n = next - at;
    float* to = out + (at - begin);
    switch (sink.kind) {
      case GradKind::kFloat:
        kernels.read_float(static_cast<const float*>(sink.accumulator) + at, to, n, multiplier);
        break;
      case GradKind::kFixed32:
        kernels.read_fixed32(static_cast<const int32_t*>(sink.accumulator) + at, to, n,
                             std::ldexp(multiplier, -sink.exponents[block]));
        break;
      case GradKind::kFixed64:
        kernels.read_fixed64(static_cast<const int64_t*>(sink.accumulator) + at, to, n,
                             std::ldexp(multiplier, -sink.exponents[block]));
        break;
    }
  });
}

}  // namespace

void CpuOps::accumulate_gradient(Stream&, const Tensor& g, const GradSink& sink) {
  check_sink(sink);
  CHECK(g.is_dense() && g.elements() == sink.elements) << g.to_string();
  const auto* gradient = g.as<float>();
  pool_.run((sink.elements + kSinkPiece - 1) / kSinkPiece, [&](int64_t piece, int) {
    const int64_t begin = piece * kSinkPiece;
    add_to_sink(kernels_, gradient + begin, begin, std::min(kSinkPiece, sink.elements - begin),
                sink);
  });
}

void CpuOps::gradient_squared_norm(Stream&, const GradSink& gradient, const Tensor& out) {
  CHECK_EQ(out.elements(), 1);
  const int64_t pieces = (gradient.elements + kSquaresPiece - 1) / kSquaresPiece;
  const Workspace::Scope scope(workspace_);
  auto* partial = workspace_.take<double>(pieces);
  pool_.run(pieces, [&](int64_t piece, int) {
    const int64_t begin = piece * kSquaresPiece;
    partial[piece] =
        sum_squares(kernels_, gradient, begin, std::min(gradient.elements, begin + kSquaresPiece));
  });
  double sum = 0.0;
  for (int64_t piece = 0; piece < pieces; ++piece) sum += partial[piece];
  *out.as<double>() = sum;
}

// A chunk of p, m and v (96 KiB) is updated and hashed while it is in the second-level cache.
void CpuOps::adamw(Stream&, const AdamwArgs& args) {
  check_adamw(args);
  const int64_t elements = args.param.shape(0);
  const Workspace::Scope scope(workspace_);
  auto* gradients = workspace_.take<float>(kDigestChunk * threads());
  const bool as_it_is = args.gradient.kind == GradKind::kFloat && args.gradient_multiplier == 1.0;
  pool_.run((elements + kDigestChunk - 1) / kDigestChunk, [&](int64_t chunk, int thread) {
    const int64_t begin = chunk * kDigestChunk;
    const int64_t end = std::min(elements, begin + kDigestChunk);
    AdamwPiece piece{};
    piece.count = end - begin;
    piece.param = args.param.as<float>() + begin;
    piece.m = args.m.as<float>() + begin;
    piece.v = args.v.as<float>() + begin;
    piece.param_low = args.param_low.is_absent() ? nullptr : args.param_low.as<BF16>() + begin;
    if (as_it_is) {
      piece.gradient = static_cast<const float*>(args.gradient.accumulator) + begin;
    } else {
      float* gradient = gradients + thread * kDigestChunk;
      read_gradient(kernels_, args.gradient, begin, end, args.gradient_multiplier, gradient);
      piece.gradient = gradient;
    }
    piece.lr = args.lr;
    piece.beta1 = args.beta1;
    piece.beta2 = args.beta2;
    piece.epsilon = args.epsilon;
    piece.decay = args.decay;
    piece.correction1 = args.correction1;
    piece.correction2 = args.correction2;
    kernels_.adamw(piece);
    if (!args.digests.empty()) {
      args.digests[static_cast<size_t>(chunk)] =
          kernels_.digest(piece.param, piece.m, piece.v, piece.count);
    }
  });
}

void CpuOps::state_digests(Stream&, const Tensor& param, const Tensor& m, const Tensor& v,
                           std::span<uint64_t> digests) {
  check_digests(param, m, v, digests);
  const int64_t elements = param.shape(0);
  pool_.run(static_cast<int64_t>(digests.size()), [&](int64_t chunk, int) {
    const int64_t begin = chunk * kDigestChunk;
    digests[static_cast<size_t>(chunk)] =
        kernels_.digest(param.as<float>() + begin, m.as<float>() + begin, v.as<float>() + begin,
                        std::min(kDigestChunk, elements - begin));
  });
}

}  // namespace perdure::kernels::cpu
