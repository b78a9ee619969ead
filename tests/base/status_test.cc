#include "base/status.h"

#include "base/ids.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

Result<int> half(int n) {
  if (n % 2 != 0) return invalid_argument("odd");
  return n / 2;
}

Result<int> quarter(int n) {
  ASSIGN_OR_RETURN(const int h, half(n));
  return half(h);
}

TEST(StatusTest, CarriesCodeAndText) {
  const Status status = unavailable("node 3 is gone");
  EXPECT_FALSE(status.is_ok());
  EXPECT_EQ(status.to_string(), "unavailable: node 3 is gone");
  EXPECT_EQ(status.annotate("epoch 4").message(), "epoch 4: node 3 is gone");
  EXPECT_OK(Status::ok().annotate("nothing to say"));
}

TEST(ResultTest, PropagatesTheFirstError) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_THAT(quarter(6), StatusIs(StatusCode::kInvalidArgument, HasSubstr("odd")));
  EXPECT_THAT(quarter(3), StatusIs(StatusCode::kInvalidArgument));
}

TEST(CheckDeathTest, PrintsExpressionAndOperands) {
  EXPECT_DEATH(CHECK_EQ(1 + 1, 3) << "sum", "1 \\+ 1 == 3  \\(2 vs 3\\) sum");
}

TEST(StrongIdTest, ComparesAndCounts) {
  EXPECT_LT(Rank(1), Rank(2));
  EXPECT_EQ(Step(4).next(), Step(5));
}

}  // namespace
}  // namespace perdure::base
