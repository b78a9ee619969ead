#include "bench/engine/sum_error.h"

#include <atomic>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "kernels/ops.h"

namespace perdure::bench {
namespace {

using kernels::DType;
using kernels::Tensor;

constexpr int64_t kElements = 1 << 20;
constexpr int64_t kGroup = 2048;  // elements of one width
constexpr uint32_t kMicroBatches = 8;

void draw(uint32_t micro_batch, std::vector<float>& g) {
  for (int64_t i = 0; i < kElements; i += 2) {
    const auto pair = base::normal_pair({7, micro_batch}, {static_cast<uint32_t>(i), 0, 0, 0});
    const auto group = static_cast<uint32_t>(i / kGroup);
    const double width = std::pow(10.0, -4.0 * base::uniform_from({8, 8}, {group, 0, 0, 0}));
    g[static_cast<size_t>(i)] = static_cast<float>(pair.first * width);
    g[static_cast<size_t>(i) + 1] = static_cast<float>(pair.second * width);
  }
}

// A sink over vectors of its own.
struct Accumulator {
  explicit Accumulator(const runtime::engine::Numerics& n) {
    sink.kind = n.grad_kind();
    sink.elements = kElements;
    sink.block_elements = n.block_elements > 0 ? n.block_elements : kElements;
    const auto blocks = static_cast<size_t>(sink.blocks());
    memory.resize(static_cast<size_t>(kElements) * 8);
    exponents.resize(blocks);
    maxima.resize(blocks);
    tracked.resize(blocks);
    sink.accumulator = memory.data();
    sink.exponents = exponents.data();
    sink.abs_max = maxima.data();
    sink.flags = &flags;
    if (n.mode == runtime::engine::SumMode::kExact) {
      sink.limit = runtime::engine::addend_limit(n.width_bits, kMicroBatches / n.grain);
    }
  }
  double value(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    const int e = exponents[static_cast<size_t>(i / sink.block_elements)];
    switch (sink.kind) {
      case kernels::GradKind::kFloat:
        return static_cast<double>(reinterpret_cast<const float*>(memory.data())[at]);
      case kernels::GradKind::kFixed32:
        return std::ldexp(reinterpret_cast<const int32_t*>(memory.data())[at], -e);
      case kernels::GradKind::kFixed64:
        return std::ldexp(static_cast<double>(reinterpret_cast<const int64_t*>(memory.data())[at]),
                          -e);
    }
    return 0.0;
  }
  kernels::GradSink sink;
  std::vector<std::byte> memory;
  std::vector<int16_t> exponents;
  std::vector<float> maxima, tracked;
  std::atomic<uint32_t> flags{0};
};

}  // namespace

double sum_error(kernels::Device& device, const runtime::engine::Numerics& numerics) {
  auto stream = device.make_stream().value();
  std::vector<float> g(static_cast<size_t>(kElements)), grain(static_cast<size_t>(kElements));
  std::vector<double> exact(static_cast<size_t>(kElements));
  Accumulator sums(numerics);
  const bool fixed = numerics.mode == runtime::engine::SumMode::kExact;
  // The first pass finds the maxima, the second sums with exponents made from them.
  for (int pass = fixed ? 0 : 1; pass < 2; ++pass) {
    std::fill(sums.memory.begin(), sums.memory.end(), std::byte{0});
    std::fill(exact.begin(), exact.end(), 0.0);
    for (uint32_t m = 0; m < kMicroBatches; ++m) {
      draw(m, g);
      for (size_t i = 0; i < g.size(); ++i) {
        exact[i] += static_cast<double>(g[i]);
        grain[i] = m % numerics.grain == 0 ? g[i] : grain[i] + g[i];
      }
      if ((m + 1) % numerics.grain != 0) continue;
      device.ops().accumulate_gradient(
          *stream, Tensor::vector(grain.data(), DType::kF32, kElements), sums.sink);
    }
    if (fixed && pass == 0) {
      runtime::engine::recalibrate_scale({sums.exponents, sums.tracked, sums.maxima},
                                         sums.sink.limit,
                                         runtime::engine::headroom_bits(numerics.width_bits));
      sums.flags = 0;
    }
  }
  CHECK_EQ(sums.flags.load(), 0u);
  double squares = 0.0;  // of errors relative to the size of what is in the group
  for (int64_t group = 0; group < kElements / kGroup; ++group) {
    double size = 0.0;
    double error = 0.0;
    for (int64_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
      const double reference = exact[static_cast<size_t>(i)];
      size += reference * reference;
      error += (sums.value(i) - reference) * (sums.value(i) - reference);
    }
    squares += error / size;
  }
  return std::sqrt(squares / static_cast<double>(kElements / kGroup));
}

}  // namespace perdure::bench
