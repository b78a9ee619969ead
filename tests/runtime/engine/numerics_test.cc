#include "runtime/engine/numerics.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/testing/matchers.h"

namespace perdure::runtime::engine {
namespace {

TEST(NumericsTest, AddendsAtTheLimitCannotWrap) {
  for (const uint32_t addends : {1u, 2u, 3u, 7u, 8u, 1000u}) {
    EXPECT_LE(static_cast<__int128>(addend_limit(64, addends)) * addends,
              std::numeric_limits<int64_t>::max());
    EXPECT_LE(addend_limit(32, addends) * addends, std::numeric_limits<int32_t>::max());
    EXPECT_GT(addend_limit(32, addends) * (addends + 1), (int64_t{1} << 30));
  }
}

TEST(NumericsTest, ExponentLeavesTheHeadroomAndNotMuchMore) {
  for (const float abs_max : {1e-12f, 0.03f, 0.5f, 1.0f, 1.5f, 3e6f}) {
    for (const uint32_t width : {32u, 64u}) {
      const int64_t limit = addend_limit(width, 24);
      const int headroom = headroom_bits(width);
      const int e = exponent_for(abs_max, limit, headroom);
      EXPECT_LE(std::ldexp(static_cast<double>(abs_max), e + headroom), static_cast<double>(limit));
      if (e < 100) {
        EXPECT_GT(std::ldexp(static_cast<double>(abs_max), e + headroom + 3),
                  static_cast<double>(limit));
      }
    }
  }
  EXPECT_EQ(exponent_for(0.0f, 1 << 20, 3), 100);
}

TEST(NumericsTest, TrackedMaximaDecayAndQuietBlocksKeepRoomToWakeUp) {
  std::vector<int16_t> exponents(3);
  std::vector<float> tracked = {8.0f, 1.0f, 0.0f};
  const std::vector<float> seen = {1.0f, 2.0f, 0.0f};
  const ScaleSpans scale{exponents, tracked, seen};
  const int64_t limit = int64_t{1} << 28;
  advance_scale(scale, limit, 3);
  EXPECT_EQ(tracked, (std::vector<float>{4.0f, 2.0f, 0.0f}));
  EXPECT_EQ(exponents[0], exponent_for(4.0f, limit, 3));
  EXPECT_EQ(exponents[2], exponent_for(std::ldexp(4.0f, -kQuietBits), limit, 3));
  recalibrate_scale(scale, limit, 3);
  EXPECT_EQ(tracked, seen);
}

TEST(NumericsTest, KindFollowsModeAndWidth) {
  Numerics n;
  EXPECT_EQ(n.grad_kind(), kernels::GradKind::kFixed64);
  EXPECT_EQ(n.accumulator_bytes(), 8);
  n.width_bits = 32;
  EXPECT_EQ(n.grad_kind(), kernels::GradKind::kFixed32);
  EXPECT_EQ(n.accumulator_bytes(), 4);
  n.mode = SumMode::kFast;
  EXPECT_EQ(n.grad_kind(), kernels::GradKind::kFloat);
}

}  // namespace
}  // namespace perdure::runtime::engine
