#include "runtime/engine/vote.h"

#include <cmath>
#include <limits>

#include "kernels/gradient.h"
#include "runtime/collective/reduce_op.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::engine {
namespace {

using base::TensorId;
using ::perdure::testing::StatusIs;

void merge(Vote& into, Vote& from) {
  collective::combine(collective::ReduceOp::kSumThenMax, into.bytes(), from.bytes());
}

TEST(VoteTest, SumsLossesAndGathersNorms) {
  Vote a(3), b(3);
  a.add_loss(1.25);
  a.add_loss(2.0);
  b.add_loss(-0.5);
  a.set_squared_norm(TensorId(0), 4.0);
  b.set_squared_norm(TensorId(2), 0.1);
  merge(a, b);
  EXPECT_EQ(a.micro_batches(), 3u);
  EXPECT_DOUBLE_EQ(a.loss_sum(), 2.75);
  EXPECT_EQ(a.squared_norm(TensorId(2)), 0.1);
  EXPECT_EQ(a.squared_norm(), 4.0 + 0.0 + 0.1);
  EXPECT_FALSE(a.overflow() || a.not_finite() || a.uncalibrated());
}

TEST(VoteTest, FlagsOfOneRankReachAll) {
  Vote a(1), b(1);
  b.raise_flags(kernels::kGradOverflow);
  b.raise_uncalibrated();
  merge(a, b);
  EXPECT_TRUE(a.overflow());
  EXPECT_FALSE(a.not_finite());
  EXPECT_TRUE(a.uncalibrated());
  Vote c(1);
  c.raise_flags(kernels::kGradNonFinite);
  merge(a, c);
  EXPECT_TRUE(a.not_finite());
}

TEST(VoteTest, ALossThatIsNoNumberRaisesTheFlag) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), 1e300}) {
    Vote vote(1);
    vote.add_loss(bad);
    EXPECT_TRUE(vote.not_finite());
    EXPECT_EQ(vote.loss_sum(), 0.0);
  }
}

TEST(VoteTest, ReplicasThatDifferAreNamed) {
  Vote a(3), b(3);
  for (uint32_t t = 0; t < 3; ++t) {
    a.set_digest(TensorId(t), 100 + t);
    b.set_digest(TensorId(t), 100 + t);
  }
  merge(a, b);
  EXPECT_OK(a.check_digests());
  EXPECT_EQ(a.digest(TensorId(1)), 101u);
  b.set_digest(TensorId(1), 77);
  merge(a, b);
  EXPECT_THAT(a.check_digests(),
              StatusIs(base::StatusCode::kDataLoss, ::testing::HasSubstr("tensor 1")));
}

}  // namespace
}  // namespace perdure::runtime::engine
