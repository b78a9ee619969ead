// The CPU device itself: memory, description, thread pool, workspace, accuracy of exp and log, and
// what is allocated after an op has run once.

#include "kernels/cpu/cpu_device.h"

#include <atomic>
#include <cmath>
#include <numeric>

#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/workspace.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/select/make_device.h"
#include "tests/kernels/allocation_counter.h"
#include "tests/kernels/op_cases.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::testing {
namespace {

using ::perdure::base::StatusCode;
using ::perdure::testing::StatusIs;
using ::perdure::testing::test_seed;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MakeDeviceTest, MakesEachDeviceByName) {
  for (const std::string name : {"cpu", "reference"}) {
    ASSERT_OK_AND_ASSIGN(const auto device, select::make_device(name, {.threads = 2}));
    EXPECT_EQ(device->name(), name);
    EXPECT_THAT(device->description(), HasSubstr(name));
  }
}

TEST(MakeDeviceTest, NamesTheChoices) {
  EXPECT_THAT(
      select::make_device("tpu", {}),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("tpu"), HasSubstr("cpu"),
                                                   HasSubstr("cuda"), HasSubstr("reference"))));
  EXPECT_THAT(select::make_device("cpu", {.threads = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("threads")));
  EXPECT_THAT(select::make_device("cpu", {.threads = 1, .workspace_bytes = size_t{1} << 60}),
              StatusIs(StatusCode::kResourceExhausted));
}

TEST(CpuDeviceTest, GivesZeroedResidentAlignedMemory) {
  ASSERT_OK_AND_ASSIGN(const auto device, select::make_device("cpu", {.threads = 1}));
  EXPECT_GT(device->default_workspace_bytes(), 0u);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4097}, (size_t{2} << 20) + 5}) {
    ASSERT_OK_AND_ASSIGN(const auto buffer, device->allocate(bytes));
    EXPECT_EQ(buffer->size_bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(std::count(buffer->data(), buffer->data() + bytes, std::byte{0}),
              static_cast<ptrdiff_t>(bytes));
  }
  EXPECT_THAT(device->allocate(size_t{1} << 62), StatusIs(StatusCode::kResourceExhausted));
}

TEST(CpuDeviceTest, CopiesAndEventsAreDoneAtOnce) {
  ASSERT_OK_AND_ASSIGN(const auto device, select::make_device("cpu", {.threads = 1}));
  ASSERT_OK_AND_ASSIGN(const auto stream, device->make_stream());
  ASSERT_OK_AND_ASSIGN(const auto event, device->make_event());
  int from = 7;
  int to = 0;
  EXPECT_OK(device->copy(*stream, &to, &from, sizeof(int), CopyKind::kHostToDevice));
  EXPECT_EQ(to, 7);
  EXPECT_OK(event->record(*stream));
  EXPECT_OK(event->make_wait(*stream));
  EXPECT_OK(event->synchronize());
  EXPECT_OK(stream->synchronize());
}

TEST(CpuDeviceDeathTest, SaysWhenTheWorkspaceIsTooSmall) {
  ASSERT_OK_AND_ASSIGN(const auto device,
                       cpu::make_cpu_device({.threads = 1, .workspace_bytes = 4096}));
  ASSERT_OK_AND_ASSIGN(const auto stream, device->make_stream());
  std::vector<float> x(20000);
  const Tensor tensor = Tensor::matrix(x.data(), DType::kF32, 100, 200);
  std::vector<float> y(100 * 100);
  EXPECT_DEATH(device->ops().matmul(*stream, {.a = tensor,
                                              .b = tensor,
                                              .c = Tensor::matrix(y.data(), DType::kF32, 100, 100),
                                              .transpose_b = Transpose::kYes}),
               "Raise DeviceOptions::workspace_bytes");
}

TEST(ThreadPoolTest, RunsEachPieceOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    cpu::ThreadPool pool(threads, [] {});
    EXPECT_EQ(pool.threads(), threads);
    for (int round = 0; round < 300; ++round) {
      const int64_t pieces = round % 37;
      std::vector<std::atomic<int>> runs(static_cast<size_t>(pieces));
      std::atomic<int> bad_thread{0};
      pool.run(pieces, [&](int64_t piece, int thread) {
        runs[static_cast<size_t>(piece)].fetch_add(1);
        if (thread < 0 || thread >= threads) bad_thread.fetch_add(1);
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
      EXPECT_EQ(bad_thread.load(), 0);
    }
  }
}

// Largest error of f over a range, in units of the last place of the exact result.
double worst_ulp(void (*f)(const float*, float*, int64_t), double (*exact)(double), float from,
                 float to) {
  constexpr int kCount = 2000003;
  std::vector<float> x(kCount);
  std::vector<float> y(kCount);
  for (int i = 0; i < kCount; ++i) {
    x[static_cast<size_t>(i)] =
        from + (to - from) * static_cast<float>(i) / static_cast<float>(kCount - 1);
  }
  f(x.data(), y.data(), kCount);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(static_cast<double>(x[i]));
    const auto near = static_cast<float>(want);
    const double unit =
        static_cast<double>(std::nextafter(std::fabs(near), INFINITY)) - std::fabs(near);
    worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - want) / unit);
  }
  return worst;
}

TEST(VecMathTest, ExpAndLogAreWithinTwoUnitsOfTheLastPlace) {
  for (const cpu::KernelTable* kernels : cpu::usable_kernels()) {
    const double exp_near = worst_ulp(kernels->exp, std::exp, -2.0f, 2.0f);
    const double exp_wide = worst_ulp(kernels->exp, std::exp, -87.0f, 88.0f);
    const double log_near = worst_ulp(kernels->log, std::log, 0.5f, 2.0f);
    const double log_wide = worst_ulp(kernels->log, std::log, 1.0f, 1e30f);
    std::printf(
        "%s: exp %.2f ulp in [-2, 2], %.2f in [-87, 88]; log %.2f in [0.5, 2], %.2f in [1, 1e30]\n",
        std::string(kernels->name).c_str(), exp_near, exp_wide, log_near, log_wide);
    EXPECT_LT(std::max({exp_near, exp_wide, log_near, log_wide}), 2.0);
  }
}

TEST(VecMathTest, ExpHandlesTheEndsOfTheRange) {
  const float x[] = {-INFINITY, -1e30f, -150.0f, -103.0f, 0.0f, 88.7f, 89.0f, 1e30f, INFINITY, NAN};
  float y[10];
  for (const cpu::KernelTable* kernels : cpu::usable_kernels()) {
    kernels->exp(x, y, 10);
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_GT(y[3], 0.0f);  // subnormal
    EXPECT_EQ(y[4], 1.0f);
    EXPECT_NEAR(y[5] / 3.326e38f, 1.0, 0.01);
    EXPECT_EQ(y[6], INFINITY);
    EXPECT_EQ(y[7], INFINITY);
    EXPECT_EQ(y[8], INFINITY);
    EXPECT_TRUE(std::isnan(y[9]));
  }
}

TEST(LinearCrossEntropyTest, KeptAndRecomputedLogitsGiveEqualBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<std::vector<Output>> results;
    for (const KeepLogits keep : {KeepLogits::kWhenTheyFit, KeepLogits::kNever}) {
      ASSERT_OK_AND_ASSIGN(const auto device, select::make_device("cpu", {.threads = 2}));
      Workbench w(*device, {}, test_seed());
      const int64_t vocabulary = 2 * kVocabularyChunk + 257;
      const LinearCrossEntropyShape shape{21, 64, vocabulary, dtype, keep};
      LinearCrossEntropyArgs args;
      args.keep = keep;
      args.hidden = w.matrix("hidden", dtype, 21, 64, Fill::kNormal, Role::kInput);
      args.weight = w.matrix("weight", dtype, vocabulary, 64, Fill::kSmall, Role::kInput);
      args.targets = w.tokens("targets", 21, vocabulary);
      args.loss = w.vector("loss", DType::kF64, 1, Fill::kPoison, Role::kOutput);
      args.dhidden = w.matrix("dhidden", dtype, 21, 64, Fill::kPoison, Role::kOutput);
      args.weight_gradient = w.sink("sink", GradKind::kFixed32, vocabulary * 64, 512);
      args.workspace = w.workspace(linear_cross_entropy_workspace_bytes(shape));
      linear_cross_entropy(w.ops(), w.stream(), args);
      const double loss = *args.loss.as<double>();
      EXPECT_GE(linear_cross_entropy_workspace_bytes(shape),
                linear_cross_entropy_forward_workspace_bytes(shape));
      args.workspace = args.workspace.first(linear_cross_entropy_forward_workspace_bytes(shape));
      linear_cross_entropy_forward(w.ops(), w.stream(), args);
      EXPECT_EQ(loss, *args.loss.as<double>());
      results.push_back(w.outputs());
    }
    for (size_t i = 0; i < results[0].size(); ++i)
      EXPECT_EQ(results[0][i].bytes, results[1][i].bytes);
  }
}

// The largest number of allocations of the second call, per op.
TEST(AllocationTest, NothingIsAllocatedAfterAnOpRanOnce) {
  if (!can_count_allocations()) GTEST_SKIP() << "a sanitizer owns the allocator";
  ASSERT_OK_AND_ASSIGN(const auto device, select::make_device("cpu", {.threads = 2}));
  int64_t in_products = 0;
  int64_t in_one_panel = 0;
  for (const OpCase& op_case : all_cases()) {
    Workbench workbench(*device, {}, test_seed());
    const auto call = op_case.make(workbench);
    call();
    const int64_t before = allocation_count();
    call();
    const int64_t count = allocation_count() - before;
    const bool uses_onednn = op_case.name.find("matmul") == 0 ||
                             op_case.name.find("weight_gradient") == 0 ||
                             op_case.name.find("linear_cross_entropy") == 0;
    if (uses_onednn) {
      in_products = std::max(in_products, count);
      if (op_case.name == "matmul_f32_f32_64_64_64_na_tb_plain") in_one_panel = count;
    } else {
      EXPECT_EQ(count, 0) << op_case.name;
    }
  }
  std::printf(
      "oneDNN allocates %lld times in a product of one panel, %lld times in the largest case\n",
      static_cast<long long>(in_one_panel), static_cast<long long>(in_products));
}

}  // namespace
}  // namespace perdure::kernels::testing
