#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::testing::ElementsAre;

TEST(PhiloxTest, KnownAnswers) {
  EXPECT_THAT(philox4x32({0, 0}, {0, 0, 0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox4x32({~0u, ~0u}, {~0u, ~0u, ~0u, ~0u}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      philox4x32({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
  static_assert(philox4x32({0, 0}, {0, 0, 0, 0})[0] == 0x6627e8d5);
}

TEST(PortableMathTest, LogAgreesWithLibm) {
  SeededRandom random(testing::test_seed());
  for (int i = 0; i < 200000; ++i) {
    const double x = std::ldexp(0.5 + random.uniform_double(), i % 1000 - 500);
    const double expected = std::log(x);
    ASSERT_NEAR(portable_log(x), expected, 1e-12 * std::max(std::abs(expected), 1e-3)) << x;
  }
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_NEAR(portable_log(0x1.0p-53), std::log(0x1.0p-53), 1e-12);
  EXPECT_NEAR(portable_log(1.0 - 0x1.0p-53), -0x1.0p-53, 1e-28);
}

TEST(PortableMathTest, SinCosAgreesWithLibm) {
  SeededRandom random(testing::test_seed());
  for (int i = 0; i < 200000; ++i) {
    const double turns = random.uniform_double();
    const SinCos value = portable_sincos_turns(turns);
    ASSERT_NEAR(value.sin, std::sin(2 * std::numbers::pi * turns), 1e-12) << turns;
    ASSERT_NEAR(value.cos, std::cos(2 * std::numbers::pi * turns), 1e-12) << turns;
  }
  EXPECT_EQ(portable_sincos_turns(0.25).cos, 0.0);
  EXPECT_EQ(portable_sincos_turns(0.5).sin, 0.0);
}

// The bits themselves: every compiler and sanitizer build has to give these.
TEST(PortableMathTest, BitsAreFixed) {
  uint64_t hash = 0;
  for (uint32_t i = 0; i < 100000; ++i) {
    const NormalPair pair = normal_pair(philox_key(7), {i, 0, 0, 0});
    hash = mix64(hash ^ std::bit_cast<uint64_t>(pair.first));
    hash = mix64(hash ^ std::bit_cast<uint64_t>(pair.second));
    hash = mix64(hash ^ std::bit_cast<uint64_t>(uniform_from(philox_key(7), {i, 1, 0, 0})));
  }
  EXPECT_EQ(hash, 0xf306964f6ed7fb58u);
}

TEST(NormalTest, HasTheMomentsOfANormal) {
  SeededRandom random(testing::test_seed());
  constexpr int kCount = 200000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.015);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
  EXPECT_NEAR(fourth / kCount, 3.0, 0.15);
}

TEST(SeededRandomTest, UniformIntIsEvenAndInRange) {
  SeededRandom random(testing::test_seed());
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(random.uniform_int(7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_EQ(random.uniform_int(1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LT(random.uniform_int(~uint64_t{0}), ~uint64_t{0});
}

TEST(SeededRandomTest, DistributionsHaveTheirMeans) {
  SeededRandom random(testing::test_seed());
  double exponential = 0, uniform = 0;
  int heads = 0;
  for (int i = 0; i < 100000; ++i) {
    exponential += random.exponential(3.0);
    uniform += random.uniform_double();
    heads += random.bernoulli(0.25);
  }
  EXPECT_NEAR(exponential / 100000, 3.0, 0.06);
  EXPECT_NEAR(uniform / 100000, 0.5, 0.005);
  EXPECT_NEAR(heads / 100000.0, 0.25, 0.01);
}

TEST(SeededRandomTest, SeedsStreamsAndForksDiffer) {
  SeededRandom a(1), same(1), other_seed(2), other_stream(1, 1);
  const uint64_t first = a.next_u64();
  EXPECT_EQ(first, same.next_u64());
  EXPECT_NE(first, other_seed.next_u64());
  EXPECT_NE(first, other_stream.next_u64());
  SeededRandom fork = a.fork();
  EXPECT_NE(fork.next_u64(), a.next_u64());
}

TEST(KeyedPermutationTest, IsABijectionForEverySize) {
  std::vector<uint64_t> sizes = {1000, 1023, 1024, 1025, 65537, 100003};
  for (uint64_t size = 1; size <= 130; ++size) sizes.push_back(size);
  for (const uint64_t size : sizes) {
    std::vector<bool> hit(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = keyed_permutation(i, size, testing::test_seed());
      ASSERT_LT(image, size);
      ASSERT_FALSE(hit[image]) << size;
      hit[image] = true;
    }
  }
  EXPECT_LT(keyed_permutation(5, ~uint64_t{0}, 1), ~uint64_t{0});
}

TEST(KeyedPermutationTest, KeysShuffleDifferentlyAndEvenly) {
  constexpr uint64_t kSize = 1000;
  int same = 0;
  double moved = 0;
  for (uint64_t i = 0; i < kSize; ++i) {
    const uint64_t a = keyed_permutation(i, kSize, 1);
    same += a == keyed_permutation(i, kSize, 2);
    moved += std::abs(static_cast<double>(a) - static_cast<double>(i));
  }
  EXPECT_LT(same, 10);
  EXPECT_NEAR(moved / kSize, kSize / 3.0, 40);  // of two uniform places
  // Over many keys every place is equally likely.
  std::vector<int> counts(10);
  for (uint64_t key = 0; key < 10000; ++key) ++counts[keyed_permutation(3, 10, key)];
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace perdure::base
