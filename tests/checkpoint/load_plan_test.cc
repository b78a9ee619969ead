#include "checkpoint/load_plan.h"

#include "tests/checkpoint/reader_fixtures.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using testing::CheckpointMaker;
using testing::WantedList;

constexpr uint64_t kRowBytes = 1000;

// Rows of 1000 bytes, each a chunk; `gaps` lie before the second, the third, ...
Manifest rows(CheckpointMaker& maker, const std::vector<size_t>& gaps) {
  std::vector<CheckpointMaker::Part> parts = {{{{0, 0}, {1, kRowBytes}}, 0}};
  for (size_t i = 0; i < gaps.size(); ++i) {
    parts.push_back({{{static_cast<int64_t>(i) + 1, 0}, {1, kRowBytes}}, 0, gaps[i]});
  }
  const Shape shape = {static_cast<int64_t>(parts.size()), kRowBytes};
  maker.add("a", ElementType::kU8, shape, testing::Bytes(parts.size() * kRowBytes), parts);
  return maker.finish();
}

std::vector<uint64_t> range_bytes(const LoadPlan& plan) {
  std::vector<uint64_t> bytes;
  for (const PlannedFile& file : plan.files) {
    for (const PlannedRange& range : file.ranges) bytes.push_back(range.bytes);
  }
  return bytes;
}

TEST(LoadPlanTest, NeighboursAreReadTogetherWhenTheGapIsSmall) {
  CheckpointMaker maker(1);
  // 2500 + 500 = 3000 <= 1.25 x 3000; the next gap would make more than 1.25 x.
  const Manifest manifest = rows(maker, {0, 700, 600, 51});
  WantedList wanted(manifest, maker);
  wanted.add("a", whole({5, kRowBytes}));
  const auto plan_of = [&](const LoadOptions& options) {
    return *plan_load(manifest, wanted.list(), options);
  };
  EXPECT_EQ(range_bytes(plan_of({.over_read_max = 1.25})), (std::vector<uint64_t>{3700, 2051}));
  EXPECT_EQ(range_bytes(plan_of({.over_read_max = 1.0})),
            (std::vector<uint64_t>{2000, 1000, 1000, 1000}));
  EXPECT_EQ(range_bytes(plan_of({.over_read_max = 9, .gap_bytes_max = 600})),
            (std::vector<uint64_t>{2000, 3651}));
  EXPECT_EQ(range_bytes(plan_of({.over_read_max = 9, .scratch_bytes_max = 1999})),
            (std::vector<uint64_t>{1000, 1000, 1000, 1000, 1000}));
  const LoadPlan plan = plan_of({.over_read_max = 1.25});
  EXPECT_EQ(plan.read_bytes, 5751u);
  EXPECT_EQ(plan.wanted_bytes, 5000u);
  ASSERT_EQ(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].ranges[1].piece_begin, 3u);
  EXPECT_EQ(plan.files[0].ranges[1].piece_end, 5u);
}

TEST(LoadPlanTest, APieceIsPlannedOnceHoweverManyWantIt) {
  CheckpointMaker maker(1);
  const Manifest manifest = rows(maker, {0, 0});
  WantedList wanted(manifest, maker);
  for (int i = 0; i < 4; ++i) wanted.add("a", {{1, 10 * i}, {2, 5}});
  const LoadPlan plan = *plan_load(manifest, wanted.list(), {});
  ASSERT_EQ(plan.files.size(), 1u);
  EXPECT_EQ(plan.files[0].pieces.size(), 2u);
  EXPECT_EQ(plan.files[0].chunks.size(), 2u);
  EXPECT_EQ(plan.files[0].chunks[0].copies.size(), 4u);
  EXPECT_EQ(plan.read_bytes, 2 * kRowBytes);
}

TEST(LoadPlanTest, PiecesOfALargeChunkThatNobodyNeedsAreNotRead) {
  CheckpointMaker maker(1);
  const Shape shape = {4, static_cast<int64_t>(kPieceBytes)};
  maker.add("a", ElementType::kU8, shape, testing::Bytes(4 * kPieceBytes), {{whole(shape), 0}});
  const Manifest manifest = maker.finish();
  WantedList wanted(manifest, maker);
  wanted.add("a", {{1, 5}, {1, 5}});
  wanted.add("a", {{3, 0}, {1, 1}});
  const LoadPlan plan = *plan_load(manifest, wanted.list(), {});
  EXPECT_EQ(range_bytes(plan), (std::vector<uint64_t>{kPieceBytes, kPieceBytes}));
  EXPECT_EQ(describe(manifest, plan.files[0], plan.files[0].pieces[1]),
            "tensor 'a', piece 3 of [0:4, 0:4194304] (bytes 12583008 to 16777312 of "
            "rank-0000.safetensors)");
  EXPECT_EQ(plan_verify(manifest, {}).read_bytes, 4 * kPieceBytes);
}

}  // namespace
}  // namespace perdure::checkpoint
