// Gradient sinks, gradient norm, AdamW and digests of its state.

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {
namespace {

constexpr double kIntegerMax = 4611686018427387904.0;  // 2^62: any limit is below it

void raise_flag(const GradSink& sink, uint32_t flag) { sink.flags->fetch_or(flag); }

}  // namespace

void add_to_sink(float g, int64_t i, const GradSink& sink) {
  if (sink.kind == GradKind::kFloat) {
    static_cast<float*>(sink.accumulator)[i] += g;
    return;
  }
  if (!std::isfinite(g)) return raise_flag(sink, kGradNonFinite);
  const int64_t block = i / sink.block_elements;
  sink.abs_max[block] = std::max(sink.abs_max[block], std::fabs(g));
  const double scaled = std::nearbyint(std::ldexp(static_cast<double>(g), sink.exponents[block]));
  if (std::fabs(scaled) > kIntegerMax) return raise_flag(sink, kGradOverflow);
  const auto q = static_cast<int64_t>(scaled);
  if (std::abs(q) > sink.limit) return raise_flag(sink, kGradOverflow);
  if (sink.kind == GradKind::kFixed32) {
    static_cast<int32_t*>(sink.accumulator)[i] += static_cast<int32_t>(q);
  } else {
    static_cast<int64_t*>(sink.accumulator)[i] += q;
  }
}

double read_gradient(const GradSink& sink, int64_t i) {
  switch (sink.kind) {
    case GradKind::kFloat:
      return static_cast<const float*>(sink.accumulator)[i];
    case GradKind::kFixed32:
      return std::ldexp(static_cast<double>(static_cast<const int32_t*>(sink.accumulator)[i]),
                        -sink.exponents[i / sink.block_elements]);
    case GradKind::kFixed64:
      return std::ldexp(static_cast<double>(static_cast<const int64_t*>(sink.accumulator)[i]),
                        -sink.exponents[i / sink.block_elements]);
  }
  return 0.0;
}

void ReferenceOps::accumulate_gradient(Stream&, const Tensor& g, const GradSink& sink) {
  check_sink(sink);
  CHECK(g.is_dense() && g.elements() == sink.elements) << g.to_string();
  const auto* gradient = g.as<float>();
  for (int64_t i = 0; i < sink.elements; ++i) add_to_sink(gradient[i], i, sink);
}

void ReferenceOps::gradient_squared_norm(Stream&, const GradSink& gradient, const Tensor& out) {
  CHECK_EQ(out.elements(), 1);
  double sum = 0.0;
  for (int64_t i = 0; i < gradient.elements; ++i) {
    const double g = read_gradient(gradient, i);
    sum += g * g;
  }
  *out.as<double>() = sum;
}

void ReferenceOps::adamw(Stream& s, const AdamwArgs& args) {
  check_adamw(args);
  const double beta1 = args.beta1;
  const double beta2 = args.beta2;
  for (int64_t i = 0; i < args.param.shape(0); ++i) {
    const double g = read_gradient(args.gradient, i) * args.gradient_multiplier;
    const double m = beta1 * load(args.m, i) + (1.0 - beta1) * g;
    const double v = beta2 * load(args.v, i) + (1.0 - beta2) * g * g;
    const double p = load(args.param, i);
    const double update =
        m / args.correction1 / (std::sqrt(v / args.correction2) + args.epsilon) + args.decay * p;
    store(args.m, i, m);
    store(args.v, i, v);
    store(args.param, i, p - args.lr * update);
    if (!args.param_low.is_absent()) store(args.param_low, i, load(args.param, i));
  }
  if (!args.digests.empty()) state_digests(s, args.param, args.m, args.v, args.digests);
}

void ReferenceOps::state_digests(Stream&, const Tensor& param, const Tensor& m, const Tensor& v,
                                 std::span<uint64_t> digests) {
  check_digests(param, m, v, digests);
  for (size_t chunk = 0; chunk < digests.size(); ++chunk) {
    const int64_t begin = static_cast<int64_t>(chunk) * kDigestChunk;
    const auto bytes =
        static_cast<size_t>(std::min(kDigestChunk, param.shape(0) - begin)) * sizeof(float);
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, param.as<float>() + begin, bytes);
    XXH3_64bits_update(&state, m.as<float>() + begin, bytes);
    XXH3_64bits_update(&state, v.as<float>() + begin, bytes);
    digests[chunk] = XXH3_64bits_digest(&state);
  }
}

}  // namespace perdure::kernels::reference
