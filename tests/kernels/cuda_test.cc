// The CUDA device as far as a machine without a GPU can tell, and the rest where there is one.

#include "kernels/cuda/cuda_device.h"

#include <numeric>
#include <vector>

#include "kernels/cuda/cuda_check.h"
#include "kernels/cuda/cuda_handle.h"
#include "kernels/select/make_device.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::cuda {
namespace {

using ::perdure::base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CudaCheckTest, MapsErrorsToStatus) {
  EXPECT_OK(cuda_status(cudaSuccess, "x"));
  EXPECT_THAT(
      cuda_status(cudaErrorInsufficientDriver, "starting"),
      StatusIs(StatusCode::kUnavailable, AllOf(HasSubstr("starting"), HasSubstr("driver"))));
  EXPECT_THAT(cuda_status(cudaErrorNoDevice, "x"),
              StatusIs(StatusCode::kUnavailable, HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_THAT(cuda_status(cudaErrorSystemNotReady, "x"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(cuda_status(cudaErrorMemoryAllocation, "x"),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("cudaErrorMemoryAllocation")));
  EXPECT_THAT(cuda_status(cudaErrorECCUncorrectable, "x"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(cuda_status(cudaErrorInvalidValue, "x"), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(cuda_status(cudaErrorNotSupported, "x"), StatusIs(StatusCode::kUnimplemented));
  EXPECT_THAT(cuda_status(cudaErrorIllegalAddress, "x"), StatusIs(StatusCode::kInternal));
}

int g_destroyed = 0;
cudaError_t destroy(int*) {
  ++g_destroyed;
  return cudaErrorInvalidValue;
}

TEST(CudaHandleTest, ReleasesOnceAndReportsOnClose) {
  int target = 0;
  {
    CudaHandle<int*, destroy> first(&target);
    CudaHandle<int*, destroy> second(std::move(first));
    EXPECT_EQ(first.get(), nullptr);
    EXPECT_EQ(second.get(), &target);
    EXPECT_THAT(second.close(), StatusIs(StatusCode::kInvalidArgument));
    EXPECT_OK(second.close());
  }
  EXPECT_EQ(g_destroyed, 1);
}

TEST(CudaDeviceTest, WithoutADeviceSaysWhy) {
  const auto device = make_cuda_device({});
  if (device.is_ok()) GTEST_SKIP() << "this machine has " << device.value()->description();
  EXPECT_THAT(device, StatusIs(StatusCode::kUnavailable, HasSubstr("looking for CUDA devices")));
  EXPECT_THAT(select::make_device("cuda", {}), StatusIs(StatusCode::kUnavailable));
}

class CudaHardwareTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = make_cuda_device({});
    if (!made.is_ok()) GTEST_SKIP() << "needs a GPU: " << made.status();
    device_ = std::move(made).value();
  }
  std::unique_ptr<Device> device_;
};

TEST_F(CudaHardwareTest, CopiesThereAndBackInStreamOrder) {
  ASSERT_OK_AND_ASSIGN(const auto first, device_->make_stream());
  ASSERT_OK_AND_ASSIGN(const auto second, device_->make_stream());
  ASSERT_OK_AND_ASSIGN(const auto event, device_->make_event());
  std::vector<int> from(1 << 20);
  std::iota(from.begin(), from.end(), 1);
  std::vector<int> to(from.size(), -1);
  const size_t bytes = from.size() * sizeof(int);
  ASSERT_OK_AND_ASSIGN(const auto buffer, device_->allocate(bytes));
  ASSERT_OK_AND_ASSIGN(const auto other, device_->allocate(bytes));
  ASSERT_OK(device_->copy(*first, to.data(), buffer->data(), bytes, CopyKind::kDeviceToHost));
  ASSERT_OK(first->synchronize());
  EXPECT_EQ(to, std::vector<int>(from.size(), 0));
  ASSERT_OK(device_->copy(*first, buffer->data(), from.data(), bytes, CopyKind::kHostToDevice));
  ASSERT_OK(event->record(*first));
  ASSERT_OK(event->make_wait(*second));
  ASSERT_OK(
      device_->copy(*second, other->data(), buffer->data(), bytes, CopyKind::kDeviceToDevice));
  ASSERT_OK(device_->copy(*second, to.data(), other->data(), bytes, CopyKind::kDeviceToHost));
  ASSERT_OK(second->synchronize());
  ASSERT_OK(event->synchronize());
  EXPECT_EQ(to, from);
}

TEST_F(CudaHardwareTest, ErrorsAreKeptOnTheStream) {
  ASSERT_OK_AND_ASSIGN(const auto stream, device_->make_stream());
  int value = 0;
  EXPECT_THAT(device_->copy(*stream, nullptr, &value, sizeof(value), CopyKind::kHostToDevice),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(stream->synchronize(), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(stream->synchronize());
  EXPECT_THAT(device_->allocate(size_t{1} << 50), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(make_cuda_device({.ordinal = 999}), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(CudaHardwareTest, DoesNotPretendToTrain) {
  EXPECT_THAT(select::make_device("cuda", {}),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("choose cpu")));
}

}  // namespace
}  // namespace perdure::kernels::cuda
