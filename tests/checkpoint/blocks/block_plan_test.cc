#include "checkpoint/blocks/block_plan.h"

#include "tests/checkpoint/blocks/block_image.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint::blocks {
namespace {

constexpr uint64_t kBlock = 1 << 20;
constexpr Alignment kDirect = {.offset = 512, .memory = 512};

ReadRange at(Image& memory, uint64_t offset, uint64_t bytes) {
  return {.offset = offset, .to = memory.bytes().subspan(offset, bytes)};
}

TEST(BlockPlanTest, AWholeImageGoesDirect) {
  const Image image(3 * kBlock);
  const auto blocks = plan_write(image.first(3 * kBlock), 3 * kBlock - 700, kDirect, kBlock);
  ASSERT_EQ(blocks.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(blocks[i].offset, i * kBlock);
    EXPECT_EQ(blocks[i].memory, image.first(1).data() + i * kBlock);
  }
  EXPECT_EQ(blocks[2].bytes, kBlock - 512);
}

TEST(BlockPlanTest, OnlyTheEndOfAnImageWithoutPaddingIsCopied) {
  const Image image(kBlock + 5000);
  const auto blocks = plan_write(image.first(kBlock + 5000), kBlock + 5000, kDirect, kBlock);
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[1].bytes, 4608u);
  EXPECT_NE(blocks[1].memory, nullptr);
  EXPECT_EQ(blocks[2].bytes, 512u);
  EXPECT_EQ(blocks[2].memory, nullptr);
}

TEST(BlockPlanTest, PaddingIsZero) {
  const Image image(700);
  std::vector<std::byte> bounce(1024, std::byte{9});
  fill_bounce({.offset = 512, .bytes = 512, .needed = 512}, image.first(700), 700, bounce.data());
  EXPECT_TRUE(equal({bounce.data(), 188}, image.first(700).subspan(512)));
  for (size_t i = 188; i < 512; ++i) EXPECT_EQ(bounce[i], std::byte{0});
  EXPECT_EQ(bounce[512], std::byte{9});
}

TEST(BlockPlanTest, BufferedFilesNeedNoCopy) {
  Image memory(4 * kBlock, 1, 3);
  const auto wrote = plan_write(memory.first(kBlock + 1), kBlock + 1, {}, kBlock);
  ASSERT_EQ(wrote.size(), 2u);
  EXPECT_EQ(wrote[1].bytes, 1u);
  EXPECT_NE(wrote[1].memory, nullptr);
  const std::vector<ReadRange> ranges = {at(memory, 1, 1), at(memory, 3, 2 * kBlock)};
  const auto read = plan_read(ranges, {}, kBlock);
  ASSERT_EQ(read.size(), 3u);
  for (const Block& block : read) EXPECT_NE(block.memory, nullptr);
}

TEST(BlockPlanTest, TheMiddleOfARangeThatFitsIsReadInPlace) {
  Image memory(4 * kBlock);
  const std::vector<ReadRange> ranges = {at(memory, 100, 2 * kBlock)};
  const auto blocks = plan_read(ranges, kDirect, kBlock);
  ASSERT_EQ(blocks.size(), 4u);
  EXPECT_EQ(blocks[0].memory, nullptr);
  EXPECT_EQ(blocks[0].bytes, 512u);
  EXPECT_EQ(blocks[1].memory, memory.bytes().data() + 512);
  EXPECT_EQ(blocks[1].bytes, kBlock);
  EXPECT_EQ(blocks[2].bytes, kBlock - 512);
  EXPECT_EQ(blocks[3].memory, nullptr);
  EXPECT_EQ(blocks[3].needed, 100u);
}

TEST(BlockPlanTest, ARangeThatDoesNotFitIsBounced) {
  Image memory(4 * kBlock, 1, 8);
  const std::vector<ReadRange> ranges = {at(memory, 100, 2 * kBlock)};
  const auto blocks = plan_read(ranges, kDirect, kBlock);
  ASSERT_EQ(blocks.size(), 3u);
  for (const Block& block : blocks) EXPECT_EQ(block.memory, nullptr);
}

TEST(BlockPlanTest, SmallNeighboursShareABlock) {
  Image memory(4 * kBlock);
  std::vector<ReadRange> ranges;
  for (uint64_t i = 0; i < 1000; ++i) ranges.push_back(at(memory, i * 600, 100));
  const auto blocks = plan_read(ranges, kDirect, kBlock);
  uint64_t bytes = 0;
  for (const Block& block : blocks) bytes += block.bytes;
  EXPECT_LT(blocks.size(), 250u);
  EXPECT_LE(bytes, 600'000u + 512);
}

TEST(BlockPlanDeathTest, OverlapIsABug) {
  Image memory(4096);
  const std::vector<ReadRange> ranges = {at(memory, 0, 10), at(memory, 9, 1)};
  EXPECT_DEATH((void)plan_read(ranges, {}, kBlock), "range 1");
  EXPECT_DEATH((void)plan_write(memory.first(10), 11, {}, kBlock), "file_bytes");
  EXPECT_DEATH((void)plan_read(ranges, {.offset = 3, .memory = 1}, kBlock), "alignment 3");
}

}  // namespace
}  // namespace perdure::checkpoint::blocks
