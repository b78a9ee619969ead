#include "base/hash.h"

#include <sstream>
#include <vector>

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

// XXH3's published values for the empty input: file formats depend on them.
TEST(HashTest, KnownAnswers) {
  EXPECT_EQ(hash64({}), 0x2d06800538d394c2u);
  std::ostringstream text;
  text << hash128({});
  EXPECT_EQ(text.str(), "99aa06d3014798d86001c324468d497f");
}

// As the plain C of the library gives them, whatever registers this processor has.
TEST(HashTest, LongInputsHaveTheSameHashOnAllProcessors) {
  std::vector<std::byte> data(1'000'003);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31 + (i >> 8));
  EXPECT_EQ(hash64(data), 0xb3deb9df60f42f10u);
  EXPECT_EQ(hash128(data, 5), (Hash128{.low = 0xce1441cfa87e9ee7, .high = 0x7c537acdccc820c4}));
  Hasher hasher(5);
  hasher.update(data);
  EXPECT_EQ(hasher.digest128(), hash128(data, 5));
}

TEST(HashTest, PiecesGiveTheHashOfTheWhole) {
  SeededRandom random(testing::test_seed());
  std::vector<std::byte> data(5000);
  for (std::byte& b : data) b = static_cast<std::byte>(random.next_u64());
  for (int round = 0; round < 50; ++round) {
    const ByteSpan all(data.data(), random.uniform_int(data.size()) + 1);
    const uint64_t seed = round % 2 == 0 ? 0 : random.next_u64();
    Hasher hasher(seed);
    for (size_t at = 0; at < all.size();) {
      const size_t piece = std::min<size_t>(random.uniform_int(700) + 1, all.size() - at);
      hasher.update(all.subspan(at, piece));
      at += piece;
    }
    EXPECT_EQ(hasher.digest64(), hash64(all, seed));
    EXPECT_EQ(hasher.digest128(), hash128(all, seed));
  }
}

}  // namespace
}  // namespace perdure::base
