#include "runtime/worker/skip_limit.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::worker {
namespace {

using engine::Applied;
using ::perdure::testing::StatusIs;

TEST(SkipLimitTest, OnlySkipsInARowStopTheJob) {
  SkipLimit limit;
  uint64_t step = 0;
  for (uint32_t i = 1; i < kSkippedInARowMax; ++i)
    EXPECT_OK(limit.note(base::Step(++step), Applied::kNo));
  EXPECT_OK(limit.note(base::Step(++step), Applied::kYes));
  for (uint32_t i = 1; i < kSkippedInARowMax; ++i)
    EXPECT_OK(limit.note(base::Step(++step), Applied::kNo));
  EXPECT_THAT(limit.note(base::Step(++step), Applied::kNo),
              StatusIs(base::StatusCode::kDataLoss, ::testing::HasSubstr("step 20")));
}

TEST(SkipLimitTest, GoesOnFromANumber) {
  SkipLimit limit(kSkippedInARowMax - 1);
  EXPECT_THAT(limit.note(base::Step(30), Applied::kNo), StatusIs(base::StatusCode::kDataLoss));
}

}  // namespace
}  // namespace perdure::runtime::worker
