#include "checkpoint/copy_and_hash.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "base/random.h"
#include "checkpoint/manifest.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

constexpr size_t kMargin = 128;
constexpr std::byte kUntouched{0xA5};

std::vector<std::byte> random_bytes(size_t size) {
  std::vector<std::byte> bytes(size);
  base::SeededRandom random(testing::test_seed());
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
  return bytes;
}

class CopyAndHashTest : public ::testing::Test {
 protected:
  CopyAndHashTest() : source_(random_bytes(kLargest + kMargin)) {}

  // Copies `size` bytes between addresses of which nothing is known but these offsets.
  void expect_exact(size_t size, size_t from_shift, size_t to_shift) {
    SCOPED_TRACE(std::to_string(size) + " bytes, shifts " + std::to_string(from_shift) + " and " +
                 std::to_string(to_shift));
    const base::ByteSpan from(source_.data() + from_shift, size);
    std::vector<std::byte> to(size + 2 * kMargin, kUntouched);
    std::byte* begin = to.data() + kMargin + to_shift;
    const size_t pieces = (size + kPieceBytes - 1) / kPieceBytes;
    std::vector<uint64_t> hashes(pieces + 1, 77);
    copy_and_hash(from, begin, hashes.data());
    ASSERT_EQ(size == 0 ? 0 : std::memcmp(begin, from.data(), size), 0);
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    EXPECT_TRUE(std::all_of(to.data(), begin, untouched));
    EXPECT_TRUE(std::all_of(begin + size, to.data() + to.size(), untouched));
    for (size_t i = 0; i < pieces; ++i) {
      const size_t at = i * kPieceBytes;
      const base::ByteSpan piece = from.subspan(at, std::min<size_t>(kPieceBytes, size - at));
      EXPECT_EQ(hashes[i], base::hash64(piece)) << "piece " << i;
    }
    EXPECT_EQ(hashes[pieces], 77u);
  }

  static constexpr size_t kLargest = 2 * kPieceBytes + 1;
  const std::vector<std::byte> source_;
};

TEST_F(CopyAndHashTest, SmallSizesAtAllShifts) {
  for (const size_t size : {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 240, 241, 256, 1000}) {
    for (size_t shift = 0; shift < 64; shift += 3) expect_exact(size, shift, 63 - shift);
    expect_exact(size, 0, 0);
  }
}

TEST_F(CopyAndHashTest, SizesAroundTheBordersOfBlocksAndPieces) {
  for (const size_t border :
       {size_t{256} << 10, size_t{512} << 10, size_t{kPieceBytes}, size_t{2 * kPieceBytes}}) {
    for (const size_t size : {border - 1, border, border + 1}) {
      expect_exact(size, 0, 0);
      expect_exact(size, 5, 3);
    }
  }
}

}  // namespace
}  // namespace perdure::checkpoint
