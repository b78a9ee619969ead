#include "kernels/cuda/cuda_device.h"
#include "kernels/select/make_device.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::cuda {
namespace {

using ::perdure::base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

TEST(NoCudaTest, SaysThatTheBuildHasNoCuda) {
  EXPECT_THAT(make_cuda_device({}),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("PERDURE_CUDA")));
  EXPECT_THAT(select::make_device("cuda", {}), StatusIs(StatusCode::kUnimplemented));
}

}  // namespace
}  // namespace perdure::kernels::cuda
