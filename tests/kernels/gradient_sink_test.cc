// Sinks: the same bits on every device, edge cases of fixed point, parts of sinks, and products
// that are fused with them.

#include "kernels/gradient.h"

#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/kernels/workbench.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::testing {
namespace {

using ::perdure::testing::test_seed;

std::vector<std::unique_ptr<Device>> cpu_devices() {
  std::vector<std::unique_ptr<Device>> devices;
  for (const cpu::KernelTable* kernels : cpu::usable_kernels()) {
    devices.push_back(
        std::move(cpu::make_cpu_device({.threads = 2, .workspace_bytes = size_t{32} << 20},
                                       {kernels, cpu::BF16Product::kThroughF32}))
            .value());
  }
  return devices;
}

// What a sink is made of, owned.
template <typename Q>
struct Accumulator {
  explicit Accumulator(int64_t elements, int64_t block, int16_t exponent)
      : q(static_cast<size_t>(elements)),
        exponents(static_cast<size_t>((elements + block - 1) / block), exponent),
        abs_max(exponents.size(), 0.0f) {
    sink.kind = sizeof(Q) == 4 ? GradKind::kFixed32 : GradKind::kFixed64;
    sink.accumulator = q.data();
    sink.elements = elements;
    sink.block_elements = block;
    sink.exponents = exponents.data();
    sink.abs_max = abs_max.data();
    sink.limit = sizeof(Q) == 4 ? int64_t{1} << 29 : int64_t{1} << 60;
    sink.flags = &flags;
  }
  std::vector<Q> q;
  std::vector<int16_t> exponents;
  std::vector<float> abs_max;
  std::atomic<uint32_t> flags{0};
  GradSink sink;
};

// Values that meet every edge: ties, the limit, subnormal numbers, infinities, NaN, signed zero.
std::vector<float> edge_values() {
  std::vector<float> g;
  for (const float base :
       {0.0f, 0.5f, 1.5f, 2.5f, 0.49999997f, 1e-45f, 1e-38f, 3.4028235e38f, 536870912.0f,
        536870944.0f, 2147483648.0f, 1e19f, 123.25f, INFINITY, NAN}) {
    g.push_back(base);
    g.push_back(-base);
  }
  while (g.size() % 64 != 0) g.push_back(0.25f * static_cast<float>(g.size()));
  for (int i = 0; i < 67; ++i)
    g.push_back(static_cast<float>(i) * 0.5f - 16.0f);  // ties, and a tail
  return g;
}

template <typename Q>
void expect_edges_equal_bits() {
  const auto reference = reference::make_reference_device({});
  std::vector<float> g = edge_values();
  const auto elements = static_cast<int64_t>(g.size());
  const Tensor tensor = Tensor::vector(g.data(), DType::kF32, elements);
  for (const int exponent : {-32768, -300, -252, -150, -149, -127, -126, -10, 0, 1, 20, 100, 127,
                             128, 149, 200, 252, 300, 32767}) {
    Accumulator<Q> expected(elements, 64, static_cast<int16_t>(exponent));
    auto stream = std::move(reference->make_stream()).value();
    reference->ops().accumulate_gradient(*stream, tensor, expected.sink);
    for (const auto& device : cpu_devices()) {
      Accumulator<Q> actual(elements, 64, static_cast<int16_t>(exponent));
      device->ops().accumulate_gradient(*stream, tensor, actual.sink);
      EXPECT_EQ(expected.q, actual.q) << device->description() << ", exponent " << exponent;
      EXPECT_EQ(expected.abs_max, actual.abs_max)
          << device->description() << ", exponent " << exponent;
      EXPECT_EQ(expected.flags.load(), actual.flags.load()) << exponent;
    }
  }
}

TEST(GradientSinkTest, EdgesOfFixed32AreEqualBitsEverywhere) { expect_edges_equal_bits<int32_t>(); }
TEST(GradientSinkTest, EdgesOfFixed64AreEqualBitsEverywhere) { expect_edges_equal_bits<int64_t>(); }

TEST(GradientSinkTest, AddendOverTheLimitCountsAsZeroAndRaisesTheFlag) {
  for (const auto& device : cpu_devices()) {
    Accumulator<int32_t> sums(64, 64, 0);
    sums.sink.limit = 100;
    std::vector<float> g(64, 0.0f);
    g[3] = 100.0f;
    g[4] = -101.0f;
    auto stream = std::move(device->make_stream()).value();
    device->ops().accumulate_gradient(*stream, Tensor::vector(g.data(), DType::kF32, 64),
                                      sums.sink);
    EXPECT_EQ(sums.q[3], 100);
    EXPECT_EQ(sums.q[4], 0);
    EXPECT_EQ(sums.flags.load(), kGradOverflow);
    EXPECT_EQ(sums.abs_max[0], 101.0f);
  }
}

TEST(GradientSinkTest, WeightGradientEqualsProductThenAccumulation) {
  for (const auto& device : cpu_devices()) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Workbench w(*device, {3, 1, 5}, test_seed());
      const int64_t rows = 70;
      const int64_t out = 200;
      const int64_t in = 500;
      const Tensor dy = w.matrix("dy", dtype, rows, out, Fill::kNormal, Role::kInput);
      const Tensor x = w.matrix("x", dtype, rows, in, Fill::kNormal, Role::kInput);
      const Tensor product =
          w.dense("product", DType::kF32, {out, in}, Fill::kPoison, Role::kOutput);
      Accumulator<int32_t> fused(out * in, 512, 18);
      Accumulator<int32_t> apart(out * in, 512, 18);
      w.ops().weight_gradient(w.stream(), dy, x, fused.sink);
      w.ops().matmul(w.stream(), {.a = dy, .b = x, .c = product, .transpose_a = Transpose::kYes});
      w.ops().accumulate_gradient(w.stream(), product, apart.sink);
      EXPECT_EQ(fused.q, apart.q) << device->description();
      EXPECT_EQ(fused.abs_max, apart.abs_max);
      EXPECT_EQ(fused.flags.load(), 0u);
    }
  }
}

TEST(GradientSinkTest, PartsOfASinkAddUpToTheWhole) {
  const auto devices = cpu_devices();
  Device& device = *devices.back();
  auto stream = std::move(device.make_stream()).value();
  std::vector<float> g(1000);
  for (size_t i = 0; i < g.size(); ++i) g[i] = static_cast<float>(i) * 0.125f - 50.0f;
  Accumulator<int32_t> whole(1000, 128, 10);
  Accumulator<int32_t> parts(1000, 128, 10);
  device.ops().accumulate_gradient(*stream, Tensor::vector(g.data(), DType::kF32, 1000),
                                   whole.sink);
  for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, 128},
                                     {128, 512},
                                     {640, 60},
                                     {700, 30},
                                     {730, 38},
                                     {768, 232}}) {
    const GradSink part = sub_sink(parts.sink, begin, count);
    EXPECT_EQ(part.elements, count);
    device.ops().accumulate_gradient(*stream, Tensor::vector(g.data() + begin, DType::kF32, count),
                                     part);
  }
  EXPECT_EQ(whole.q, parts.q);
  EXPECT_EQ(whole.abs_max, parts.abs_max);
}

TEST(GradientSinkDeathTest, APartMayNotSplitABlock) {
  Accumulator<int32_t> sums(1000, 128, 10);
  EXPECT_DEATH(sub_sink(sums.sink, 64, 128), "split a block of 128");
  EXPECT_DEATH(sub_sink(sums.sink, 900, 101), "sink.elements");
}

TEST(GradientSinkDeathTest, BlocksAndLimitsAreChecked) {
  const auto devices = cpu_devices();
  auto stream = std::move(devices.back()->make_stream()).value();
  std::vector<float> g(1000);
  const Tensor tensor = Tensor::vector(g.data(), DType::kF32, 1000);
  Accumulator<int32_t> odd(1000, 100, 10);
  EXPECT_DEATH(devices.back()->ops().accumulate_gradient(*stream, tensor, odd.sink),
               "block of 100");
  Accumulator<int32_t> large(1000, 128, 10);
  large.sink.limit = int64_t{1} << 31;
  EXPECT_DEATH(devices.back()->ops().accumulate_gradient(*stream, tensor, large.sink), "limit");
}

}  // namespace
}  // namespace perdure::kernels::testing
