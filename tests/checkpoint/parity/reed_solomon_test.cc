#include "checkpoint/parity/reed_solomon.h"

#include <algorithm>
#include <bit>
#include <new>
#include <vector>

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint::parity {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// As slabs are: at multiples of 64.
template <typename T>
struct Aligned {
  using value_type = T;
  T* allocate(size_t n) {
    return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{64}); }
  friend bool operator==(Aligned, Aligned) { return true; }
};
using Stripe = std::vector<std::byte, Aligned<std::byte>>;

// A code with random stripes of given lengths, and their parity.
class Group {
 public:
  Group(StripeCounts counts, const std::vector<size_t>& lengths, base::SeededRandom& random)
      : counts_(counts), code_(ReedSolomon::create(counts).value()) {
    size_t longest = 0;
    for (const size_t length : lengths) {
      stripes_.emplace_back(length);
      for (std::byte& b : stripes_.back()) b = static_cast<std::byte>(random.next_u64());
      longest = std::max(longest, length);
    }
    std::vector<base::MutableByteSpan> parity;
    stripes_.resize(counts.data + counts.parity);
    for (uint32_t i = 0; i < counts.parity; ++i) {
      stripes_[counts.data + i].assign(longest, std::byte{0xEE});
      parity.push_back(stripes_[counts.data + i]);
    }
    const auto all = spans();
    EXPECT_OK(code_.encode(std::span(all).first(counts.data), parity));
  }

  std::vector<base::ByteSpan> spans() const { return {stripes_.begin(), stripes_.end()}; }
  const std::vector<Stripe>& stripes() const { return stripes_; }
  const ReedSolomon& code() const { return code_; }

  // Loses the stripes whose bits are set, and has them back.
  void expect_rebuilt(uint32_t lost_bits) const {
    std::vector<base::ByteSpan> left = spans();
    std::vector<Stripe> back(left.size());
    std::vector<LostStripe> lost;
    for (uint32_t i = 0; i < left.size(); ++i) {
      if ((lost_bits >> i & 1) == 0) continue;
      back[i].assign(left[i].size(), std::byte{0x55});
      lost.push_back({.index = i, .to = back[i]});
      left[i] = {};
    }
    std::reverse(lost.begin(), lost.end());  // any order
    ASSERT_OK(code_.rebuild(left, lost));
    for (const LostStripe& stripe : lost) {
      ASSERT_EQ(back[stripe.index], stripes_[stripe.index])
          << counts_.data << "+" << counts_.parity << ", lost " << lost_bits << ", stripe "
          << stripe.index;
    }
  }

 private:
  const StripeCounts counts_;
  const ReedSolomon code_;
  std::vector<Stripe> stripes_;
};

std::vector<size_t> random_lengths(uint32_t count, size_t longest, base::SeededRandom& random) {
  std::vector<size_t> lengths;
  for (uint32_t i = 0; i < count; ++i) {
    lengths.push_back(random.uniform_int(4) == 0 ? 0 : random.uniform_int(longest + 1));
  }
  return lengths;
}

TEST(ReedSolomonTest, EveryLossThatParityAllowsIsRebuilt) {
  base::SeededRandom random(testing::test_seed());
  for (uint32_t k = 1; k <= 6; ++k) {
    for (uint32_t p = 1; p <= 3; ++p) {
      for (int round = 0; round < 4; ++round) {
        const Group group({.data = k, .parity = p}, random_lengths(k, 700, random), random);
        for (uint32_t bits = 0; bits < uint32_t{1} << (k + p); ++bits) {
          if (std::popcount(bits) <= static_cast<int>(p)) group.expect_rebuilt(bits);
        }
      }
    }
  }
}

TEST(ReedSolomonTest, LongStripesOfDifferentLengthsAreRebuilt) {
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 6; ++round) {
    const uint32_t p = static_cast<uint32_t>(1 + random.uniform_int(3));
    const Group group({.data = 5, .parity = p}, random_lengths(5, 300'000, random), random);
    for (uint32_t bits = 0; bits < uint32_t{1} << (5 + p); ++bits) {
      if (std::popcount(bits) == static_cast<int>(p)) group.expect_rebuilt(bits);
    }
  }
}

TEST(ReedSolomonTest, LengthsAroundTheBordersOfBlocks) {
  base::SeededRandom random(testing::test_seed());
  for (const size_t border : {size_t{32}, size_t{64}, size_t{64} << 10, size_t{128} << 10}) {
    const Group group({.data = 4, .parity = 2}, {border - 1, border, border + 1, 0}, random);
    for (const uint32_t bits : {0b000011u, 0b001100u, 0b010001u, 0b110000u}) {
      group.expect_rebuilt(bits);
    }
  }
}

TEST(ReedSolomonTest, MemoryOfAnyAlignmentGivesTheSameParity) {
  base::SeededRandom random(testing::test_seed());
  for (uint32_t p = 1; p <= 3; ++p) {
    for (size_t length = 0; length < 200; ++length) {
      const Group group({.data = 3, .parity = p}, {length, length / 2, length}, random);
      std::vector<Stripe> shifted;
      for (const Stripe& stripe : group.stripes()) {
        shifted.emplace_back(stripe.size() + 1);
        std::copy(stripe.begin(), stripe.end(), shifted.back().begin() + 1);
      }
      std::vector<base::ByteSpan> data;
      std::vector<base::MutableByteSpan> parity;
      for (size_t i = 0; i < 3; ++i) data.push_back(base::ByteSpan(shifted[i]).subspan(1));
      for (size_t i = 3; i < 3 + p; ++i) {
        std::fill(shifted[i].begin(), shifted[i].end(), std::byte{0x33});
        parity.push_back(base::MutableByteSpan(shifted[i]).subspan(1));
      }
      ASSERT_OK(group.code().encode(data, parity));
      for (size_t i = 3; i < 3 + p; ++i) {
        ASSERT_TRUE(std::equal(parity[i - 3].begin(), parity[i - 3].end(),
                               group.stripes()[i].begin(), group.stripes()[i].end()))
            << "parity " << i - 3 << " of " << length << " bytes";
        ASSERT_EQ(shifted[i][0], std::byte{0x33});
      }
    }
  }
}

TEST(ReedSolomonTest, TheFirstParityIsXor) {
  base::SeededRandom random(testing::test_seed());
  for (const uint32_t p : {1u, 2u}) {
    const Group group({.data = 3, .parity = p}, {100'000, 70'001, 33}, random);
    Stripe wanted(100'000);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t at = 0; at < group.stripes()[i].size(); ++at)
        wanted[at] ^= group.stripes()[i][at];
    }
    EXPECT_EQ(group.stripes()[3], wanted);
  }
}

// Stored parity is read by later versions: the coefficients are part of the format.
TEST(ReedSolomonTest, TheSecondParityHasTheCoefficientsOfTheFormat) {
  const auto product = [](uint32_t a, uint32_t b) {
    uint32_t result = 0;
    for (; b != 0; b >>= 1, a = a << 1 ^ (a & 0x80 ? 0x11d : 0)) result ^= b & 1 ? a : 0;
    return result;
  };
  const ReedSolomon code = ReedSolomon::create({.data = 4, .parity = 3}).value();
  for (uint32_t j = 0; j < 4; ++j) {
    std::vector<Stripe> data(4, Stripe(1));
    data[j][0] = std::byte{1};
    std::vector<Stripe> parity(3, Stripe(1));
    ASSERT_OK(code.encode(std::vector<base::ByteSpan>{data.begin(), data.end()},
                          std::vector<base::MutableByteSpan>{parity.begin(), parity.end()}));
    for (uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(product(std::to_integer<uint32_t>(parity[i][0]), (4 + i) ^ j), 4 ^ j)
          << "c(" << i << ", " << j << ")";
    }
  }
}

TEST(ReedSolomonTest, TheLargestCodeRebuilds) {
  base::SeededRandom random(testing::test_seed());
  const Group group({.data = 251, .parity = 4}, std::vector<size_t>(251, 64), random);
  std::vector<Stripe> back(4, Stripe(64));
  const std::vector<LostStripe> lost = {{.index = 0, .to = back[0]},
                                        {.index = 100, .to = back[1]},
                                        {.index = 250, .to = back[2]},
                                        {.index = 254, .to = back[3]}};
  ASSERT_OK(group.code().rebuild(group.spans(), lost));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(back[i], group.stripes()[lost[i].index]);
}

TEST(ReedSolomonTest, CountsThatCanNotBeAreRefused) {
  for (const StripeCounts counts :
       {StripeCounts{0, 1}, StripeCounts{1, 0}, StripeCounts{254, 2}, StripeCounts{~0u, ~0u}}) {
    EXPECT_THAT(ReedSolomon::create(counts),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::to_string(counts.data) + "+" +
                                                                 std::to_string(counts.parity))));
  }
}

TEST(ReedSolomonTest, WrongArgumentsOfEncodeAreNamed) {
  const ReedSolomon code = ReedSolomon::create({.data = 2, .parity = 1}).value();
  std::vector<Stripe> data(3, Stripe(10));
  Stripe parity(9);
  const std::vector<base::ByteSpan> three(data.begin(), data.end());
  const std::vector<base::MutableByteSpan> one = {parity};
  EXPECT_THAT(code.encode(three, one),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("3 data and 1 parity")));
  EXPECT_THAT(code.encode(std::span(three).first(2), {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 parity")));
  EXPECT_THAT(code.encode(std::span(three).first(2), one),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("stripe 2 has 9 bytes"), HasSubstr("10"))));
}

TEST(ReedSolomonTest, WrongArgumentsOfRebuildAreNamed) {
  base::SeededRandom random(testing::test_seed());
  const Group group({.data = 2, .parity = 2}, {10, 8}, random);
  const auto stripes = group.spans();
  std::vector<Stripe> back(4, Stripe(10));
  const auto rebuild = [&](const std::vector<LostStripe>& lost) {
    return group.code().rebuild(stripes, lost);
  };
  EXPECT_OK(rebuild({}));
  EXPECT_THAT(group.code().rebuild(std::span(stripes).first(3), {}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("3 stripes")));
  EXPECT_THAT(rebuild({{0, back[0]}, {1, back[1]}, {2, back[2]}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("3 stripes of 2+2 are lost")));
  EXPECT_THAT(rebuild({{4, back[0]}}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("4")));
  EXPECT_THAT(rebuild({{1, back[0]}, {1, back[1]}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
  // The longest data is lost, and said to be longer or shorter than the parity that is left.
  Stripe longer(11), shorter(9);
  EXPECT_THAT(rebuild({{0, longer}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("stripe 2 has 10 bytes")));
  EXPECT_THAT(rebuild({{0, shorter}}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(rebuild({{3, shorter}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("stripe 3 has 9 bytes")));
}

}  // namespace
}  // namespace perdure::checkpoint::parity
