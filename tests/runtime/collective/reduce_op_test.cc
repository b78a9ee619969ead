#include "runtime/collective/reduce_op.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/testing/matchers.h"

namespace perdure::runtime::collective {
namespace {

constexpr uint64_t kMaxU64 = std::numeric_limits<uint64_t>::max();

template <typename T>
std::vector<T> combined(ReduceOp op, std::vector<T> into, const std::vector<T>& from) {
  combine(op, std::as_writable_bytes(std::span<T>(into)), std::as_bytes(std::span<const T>(from)));
  return into;
}

TEST(ReduceOpTest, ElementsHaveTheirSize) {
  for (const ReduceOp op : {ReduceOp::kSumI32, ReduceOp::kSumF32, ReduceOp::kMaxF32})
    EXPECT_EQ(element_bytes(op), 4u);
  for (const ReduceOp op :
       {ReduceOp::kSumI64, ReduceOp::kSumU64, ReduceOp::kMaxU64, ReduceOp::kSumThenMax})
    EXPECT_EQ(element_bytes(op), 8u);
}

TEST(ReduceOpTest, SumI32WrapsAround) {
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(combined<int32_t>(ReduceOp::kSumI32, {1, -5, kMax, -kMax}, {2, 3, 1, -2}),
            (std::vector<int32_t>{3, -2, -kMax - 1, kMax}));
}

TEST(ReduceOpTest, SumI64WrapsAround) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(combined<int64_t>(ReduceOp::kSumI64, {1LL << 40, -5, kMax}, {1LL << 41, 3, 1}),
            (std::vector<int64_t>{3LL << 40, -2, -kMax - 1}));
}

TEST(ReduceOpTest, SumU64WrapsAround) {
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kSumU64, {1, kMaxU64}, {2, 3}),
            (std::vector<uint64_t>{3, 2}));
}

TEST(ReduceOpTest, SumF32RoundsOnce) {
  EXPECT_EQ(combined<float>(ReduceOp::kSumF32, {1.5f, 1.0f, -0.25f}, {2.0f, 1e-8f, 0.25f}),
            (std::vector<float>{3.5f, 1.0f, 0.0f}));
  EXPECT_TRUE(std::isnan(combined<float>(ReduceOp::kSumF32, {INFINITY}, {-INFINITY})[0]));
}

TEST(ReduceOpTest, MaxF32TakesTheLarger) {
  EXPECT_EQ(combined<float>(ReduceOp::kMaxF32, {1.0f, -3.0f, -INFINITY, 7.0f},
                            {2.0f, -4.0f, -1.0f, INFINITY}),
            (std::vector<float>{2.0f, -3.0f, -1.0f, INFINITY}));
}

TEST(ReduceOpTest, MaxU64IsUnsigned) {
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kMaxU64, {1, kMaxU64, 0}, {uint64_t{1} << 63, 5, 0}),
            (std::vector<uint64_t>{uint64_t{1} << 63, kMaxU64, 0}));
}

TEST(ReduceOpTest, SumThenMaxKeepsItsShape) {
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kSumThenMax, {2, 10, 20, 30, 40}, {2, 1, 2, 3, 400}),
            (std::vector<uint64_t>{2, 11, 22, 30, 400}));
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kSumThenMax, {0, 10, 20}, {0, 1, 200}),
            (std::vector<uint64_t>{0, 10, 200}));
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kSumThenMax, {2, 10, 20}, {2, 1, 2}),
            (std::vector<uint64_t>{2, 11, 22}));
  EXPECT_EQ(combined<uint64_t>(ReduceOp::kSumThenMax, {0}, {0}), (std::vector<uint64_t>{0}));
}

TEST(ReduceOpTest, EmptyArraysAndOddCountsAreFine) {
  for (const ReduceOp op : {ReduceOp::kSumI32, ReduceOp::kSumF32, ReduceOp::kMaxF32})
    EXPECT_TRUE(combined<float>(op, {}, {}).empty());
  for (const ReduceOp op : {ReduceOp::kSumI64, ReduceOp::kSumU64, ReduceOp::kMaxU64})
    EXPECT_TRUE(combined<uint64_t>(op, {}, {}).empty());
  for (size_t n = 1; n < 70; ++n) {  // beside the vector widths
    std::vector<uint32_t> into(n), from(n), sum(n);
    for (uint32_t i = 0; i < n; ++i) {
      into[i] = 100 + i;
      from[i] = 7 * i;
      sum[i] = 100 + 8 * i;
    }
    EXPECT_EQ(combined<uint32_t>(ReduceOp::kSumI32, into, from), sum) << n;
  }
}

TEST(ReduceOpDeathTest, ArraysThatDoNotMatchAreABug) {
  EXPECT_DEATH(combined<uint64_t>(ReduceOp::kSumU64, {1, 2}, {1}), "size");
  EXPECT_DEATH(combined<uint32_t>(ReduceOp::kSumU64, {1, 2, 3}, {1, 2, 3}), "size");
  EXPECT_DEATH(combined<uint64_t>(ReduceOp::kSumThenMax, {1, 5, 6}, {2, 5, 6}),
               "two votes of different shape");
}

TEST(ReduceOpDeathTest, MoreSumsThanWordsAreABug) {
  for (const uint64_t sums : {uint64_t{3}, (uint64_t{1} << 61) - 1, kMaxU64}) {
    EXPECT_DEATH(combined<uint64_t>(ReduceOp::kSumThenMax, {sums, 5, 6}, {sums, 5, 6}), "sums")
        << sums;
  }
  EXPECT_DEATH(combined<uint64_t>(ReduceOp::kSumThenMax, {}, {}), "words");
}

}  // namespace
}  // namespace perdure::runtime::collective
