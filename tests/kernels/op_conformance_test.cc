// Every device against the reference, over all ops, dtypes and odd shapes; and the promise that
// bits depend on shapes and values only: not on threads, placement in memory, or load.

#include <atomic>
#include <cmath>
#include <thread>

#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/kernels/op_cases.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::testing {
namespace {

using ::perdure::testing::test_seed;

std::unique_ptr<Device> make_cpu(int threads, const cpu::CpuVariant& variant) {
  return std::move(cpu::make_cpu_device({.threads = threads, .workspace_bytes = size_t{48} << 20},
                                        variant))
      .value();
}

struct CaseResult {
  std::vector<Output> outputs;
  std::string memory;
};

CaseResult run_case(Device& device, const OpCase& op_case, const Placement& placement) {
  Workbench workbench(device, placement, test_seed());
  const auto call = op_case.make(workbench);
  call();
  return {workbench.outputs(), workbench.check_memory()};
}

void expect_close(const std::vector<Output>& expected, const std::vector<Output>& actual,
                  const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const Output& e = expected[i];
    const Output& a = actual[i];
    double squares = 0.0;
    for (const double value : e.values) squares += std::isfinite(value) ? value * value : 0.0;
    const double spread =
        std::sqrt(squares / static_cast<double>(std::max<size_t>(1, e.values.size())));
    // Integers are accumulated gradients: half a quantum either way, and what f32 may round
    // differently.
    const double quantum = e.dtype == DType::kI32 || e.dtype == DType::kI64 ? 1.0 : 0.0;
    for (size_t k = 0; k < e.values.size(); ++k) {
      double bound = e.tolerance.relative * std::fabs(e.values[k]) + e.tolerance.spread * spread +
                     e.tolerance.absolute;
      if (e.tolerance.relative > 0.0) bound += quantum;
      const double error = std::fabs(e.values[k] - a.values[k]);
      ASSERT_TRUE(error <= bound || (std::isnan(e.values[k]) && std::isnan(a.values[k])))
          << what << ": " << e.name << "[" << k << "] is " << a.values[k] << ", expected "
          << e.values[k] << ", bound " << bound;
    }
  }
}

void expect_equal_bits(const CaseResult& expected, const CaseResult& actual,
                       const std::string& what) {
  EXPECT_EQ(actual.memory, "") << what;
  ASSERT_EQ(expected.outputs.size(), actual.outputs.size());
  for (size_t i = 0; i < expected.outputs.size(); ++i) {
    const Output& e = expected.outputs[i];
    const Output& a = actual.outputs[i];
    if (e.bytes == a.bytes) continue;
    size_t differing = 0;
    for (size_t k = 0; k < e.values.size(); ++k) differing += e.values[k] != a.values[k] ? 1 : 0;
    ADD_FAILURE() << what << ": " << differing << " of " << e.values.size() << " values of "
                  << e.name << " differ in bits";
  }
}

struct Variant {
  std::string name;
  cpu::CpuVariant cpu;
};

std::ostream& operator<<(std::ostream& out, const Variant& variant) { return out << variant.name; }

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const cpu::KernelTable* kernels : cpu::usable_kernels()) {
    all.push_back({std::string(kernels->name), {kernels, cpu::BF16Product::kThroughF32}});
  }
  if (cpu::bf16_product() == cpu::BF16Product::kNative) {
    all.push_back({"best", {&cpu::best_kernels(), cpu::BF16Product::kNative}});
  }
  return all;
}

class OpConformanceTest : public ::testing::TestWithParam<Variant> {};

// What the reference gives for each case: computed once for all variants.
const std::vector<CaseResult>& reference_results() {
  static const std::vector<CaseResult> results = [] {
    const auto reference = reference::make_reference_device({});
    std::vector<CaseResult> all;
    for (const OpCase& op_case : all_cases()) all.push_back(run_case(*reference, op_case, {}));
    return all;
  }();
  return results;
}

TEST_P(OpConformanceTest, MatchesReference) {
  const auto cpu = make_cpu(1, GetParam().cpu);
  size_t index = 0;
  for (const OpCase& op_case : all_cases()) {
    const CaseResult& expected = reference_results()[index++];
    const CaseResult actual = run_case(*cpu, op_case, {});
    EXPECT_EQ(expected.memory, "") << op_case.name;
    EXPECT_EQ(actual.memory, "") << op_case.name;
    expect_close(expected.outputs, actual.outputs, op_case.name);
  }
}

TEST_P(OpConformanceTest, BitsDoNotDependOnThreads) {
  const auto one = make_cpu(1, GetParam().cpu);
  const auto two = make_cpu(2, GetParam().cpu);
  const auto three = make_cpu(3, GetParam().cpu);
  for (const OpCase& op_case : all_cases()) {
    const CaseResult expected = run_case(*one, op_case, {});
    expect_equal_bits(expected, run_case(*two, op_case, {}), op_case.name + " with 2 threads");
    expect_equal_bits(expected, run_case(*three, op_case, {}), op_case.name + " with 3 threads");
  }
}

TEST_P(OpConformanceTest, BitsDoNotDependOnPlacement) {
  const auto cpu = make_cpu(2, GetParam().cpu);
  const Placement placements[] = {{1, 0, 0}, {2, 3, 1}, {4, 5, 16}, {7, 11, 61}};
  for (const OpCase& op_case : all_cases()) {
    const CaseResult expected = run_case(*cpu, op_case, {});
    for (const Placement& p : placements) {
      expect_equal_bits(expected, run_case(*cpu, op_case, p),
                        op_case.name + " shifted by " + std::to_string(p.shift_first) + "+" +
                            std::to_string(p.shift_step) + "i, padded by " + std::to_string(p.pad));
    }
  }
}

TEST(OpConformanceLoadTest, BitsDoNotDependOnOtherLoad) {
  const auto one = make_cpu(1, variants().back().cpu);
  const auto three = make_cpu(3, variants().back().cpu);
  std::atomic<bool> stop{false};
  std::thread burner([&] {
    double x = 1.0;
    while (!stop.load(std::memory_order_relaxed)) x = x * 1.0000001 + 1e-9;
    EXPECT_GT(x, 0.0);
  });
  for (const OpCase& op_case : all_cases()) {
    const CaseResult expected = run_case(*one, op_case, {});
    expect_equal_bits(expected, run_case(*three, op_case, {3, 1, 0}), op_case.name + " under load");
  }
  stop.store(true);
  burner.join();
}

INSTANTIATE_TEST_SUITE_P(Cpu, OpConformanceTest, ::testing::ValuesIn(variants()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace perdure::kernels::testing
