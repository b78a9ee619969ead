#include "checkpoint/box.h"

#include <algorithm>
#include <limits>
#include <set>

#include "base/random.h"
#include "checkpoint/element_type.h"
#include "tests/checkpoint/random_boxes.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::SeededRandom;
using base::StatusCode;
using perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::places;
using testing::random_box;

Shape random_shape(SeededRandom& random) {
  Shape shape(random.uniform_int(5));
  for (int64_t& size : shape) size = static_cast<int64_t>(1 + random.uniform_int(5));
  return shape;
}

TEST(ElementTypeTest, NamesLeadBackAndForth) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(ElementType::kU64); ++i) {
    const auto type = static_cast<ElementType>(i);
    EXPECT_EQ(element_type_of(to_string(type)), type);
    EXPECT_TRUE(names.insert(to_string(type)).second) << to_string(type);
    EXPECT_THAT(size_bits(type), ::testing::AnyOf(4u, 6u, 8u, 16u, 32u, 64u));
  }
  EXPECT_EQ(to_string(ElementType::kBF16), "BF16");
  EXPECT_EQ(size_bits(ElementType::kBF16), 16u);
  EXPECT_EQ(size_bits(ElementType::kF6E3M2), 6u);
  EXPECT_EQ(size_bits(ElementType::kBool), 8u);
  EXPECT_EQ(element_type_of("f32"), std::nullopt);
  EXPECT_EQ(element_type_of(""), std::nullopt);
}

TEST(BoxTest, AScalarHasOneElement) {
  EXPECT_EQ(*element_count({}), 1u);
  EXPECT_FALSE(is_empty(whole({})));
  EXPECT_EQ(intersect(whole({}), whole({})), whole({}));
  EXPECT_EQ(to_string(whole({})), "[]");
  const auto runs = runs_of({}, {}, {});
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].count, 1u);
}

TEST(BoxTest, CountsAreCheckedForOverflowAlsoBesideAZero) {
  const int64_t big = int64_t{1} << 32;
  EXPECT_EQ(*element_count(Shape{3, 0, 5}), 0u);
  EXPECT_EQ(*element_count(Shape{big / 2, big - 1}), uint64_t(big / 2) * uint64_t(big - 1));
  const int64_t max = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(*element_count(Shape{max, 1}), uint64_t(max));
  for (const Shape& shape : {Shape{big, big}, Shape{big, big, 0}, Shape{0, big, big}}) {
    EXPECT_THAT(element_count(shape),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("4294967296")));
  }
  EXPECT_THAT(element_count(Shape{2, -1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("[2, -1] has a negative size")));
}

TEST(BoxTest, WhatIsCommonOfTwoBoxes) {
  const Box a = {{0, 2}, {4, 4}};
  EXPECT_EQ(intersect(a, {{2, 0}, {9, 3}}), (Box{{2, 2}, {2, 1}}));
  EXPECT_TRUE(is_empty(intersect(a, {{4, 2}, {1, 1}})));
  EXPECT_TRUE(is_empty(intersect({{0}, {2}}, {{5}, {2}})));
  EXPECT_EQ(to_string(Box{{0, 128}, {4, 128}}), "[0:4, 128:256]");
}

TEST(RunsTest, WholeInnerDimensionsAreOneRun) {
  const Box rows = {{2, 0, 0}, {3, 4, 5}};
  const auto runs = runs_of(rows, whole({8, 4, 5}), rows);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].from, 40u);
  EXPECT_EQ(runs[0].to, 0u);
  EXPECT_EQ(runs[0].count, 60u);

  const Box columns = {{0, 1}, {8, 2}};
  EXPECT_EQ(runs_of(columns, whole({8, 4}), columns).size(), 8u);
  // One row of a column slice is one run, however many dimensions of size 1 stand around it.
  EXPECT_EQ(runs_of({{3, 0, 1}, {1, 1, 2}}, whole({8, 1, 4}), {{3, 0, 1}, {1, 1, 2}}).size(), 1u);
}

TEST(RunsTest, CopyWhatAnElementwiseOracleCopies) {
  SeededRandom random(perdure::testing::test_seed());
  size_t many_runs = 0;
  for (int round = 0; round < 3000; ++round) {
    const Shape shape = random_shape(random);
    const Box held = random_box(random, shape);
    const Box wanted = random_box(random, shape);
    const Box part = intersect(held, wanted);
    const std::vector<int64_t> from = places(held, shape);
    std::vector<int64_t> to(places(wanted, shape).size(), -1);
    uint64_t from_end = 0;
    const auto runs = runs_of(part, held, wanted);
    many_runs += runs.size() > 1 ? 1 : 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      ASSERT_GT(runs[i].count, 0u);
      ASSERT_GE(runs[i].from, from_end);
      // Two runs that lie one after the other in both would be one.
      const bool joins =
          i > 0 && runs[i].from == from_end && runs[i].to == runs[i - 1].to + runs[i - 1].count;
      ASSERT_FALSE(joins) << to_string(part);
      from_end = runs[i].from + runs[i].count;
      ASSERT_LE(from_end, from.size());
      ASSERT_LE(runs[i].to + runs[i].count, to.size());
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(runs[i].from), runs[i].count,
                  to.begin() + static_cast<ptrdiff_t>(runs[i].to));
    }
    std::vector<int64_t> expected = places(wanted, shape);
    const std::vector<int64_t> common = places(part, shape);
    const std::set<int64_t> in_part(common.begin(), common.end());
    for (int64_t& place : expected) {
      if (!in_part.contains(place)) place = -1;
    }
    ASSERT_EQ(to, expected) << to_string(held) << to_string(wanted);
  }
  EXPECT_GT(many_runs, 300u);
}

TEST(TilingTest, SlicesGridsAndPinwheelsTile) {
  EXPECT_OK(check_tiling({}, std::vector<Box>{{}}));
  EXPECT_OK(check_tiling({0, 4}, std::vector<Box>{}));
  EXPECT_OK(check_tiling({0, 4}, std::vector<Box>{{{0, 0}, {0, 4}}}));
  EXPECT_OK(check_tiling({6}, std::vector<Box>{{{4}, {2}}, {{0}, {2}}, {{2}, {2}}, {{6}, {0}}}));
  // No straight cut goes through: the five parts lie around the middle one.
  const std::vector<Box> pinwheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  EXPECT_OK(check_tiling({3, 3}, pinwheel));
  std::vector<Box> moved = pinwheel;
  moved[4] = {{1, 0}, {1, 1}};
  EXPECT_THAT(check_tiling({3, 3}, moved),
              StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("[1:2, 0:1]"), HasSubstr("overlap"),
                                                    HasSubstr("[1:3, 0:1]"))));
}

TEST(TilingTest, SaysWhatIsWrong) {
  EXPECT_THAT(check_tiling({}, std::vector<Box>{}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("cover 0 of the 1 elements")));
  EXPECT_THAT(check_tiling({}, std::vector<Box>{{}, {}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("overlap")));
  EXPECT_THAT(check_tiling({6}, std::vector<Box>{{{0}, {2}}, {{3}, {3}}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("1 are missing")));
  EXPECT_THAT(check_tiling({6}, std::vector<Box>{{{0}, {4}}, {{3}, {3}}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("the boxes [0:4] and [3:6] overlap")));
  const int64_t max = std::numeric_limits<int64_t>::max();
  for (const Box& box : {Box{{0}, {7}}, Box{{-1}, {2}}, Box{{7}, {0}}, Box{{0, 0}, {6, 1}},
                         Box{{0}, {-1}}, Box{{2}, {max}}, Box{{}, {6}}}) {
    EXPECT_THAT(check_tiling({6}, std::vector<Box>{box}),
                StatusIs(StatusCode::kDataLoss, HasSubstr("does not lie in the shape [6]")));
  }
  EXPECT_THAT(check_tiling({max, max}, std::vector<Box>{}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("more than 2^63 - 1 elements")));
}

// The answer of counting elements one by one.
TEST(TilingTest, AgreesWithCountingElements) {
  SeededRandom random(perdure::testing::test_seed());
  int tiled = 0;
  for (int round = 0; round < 4000; ++round) {
    const Shape shape = random_shape(random);
    std::vector<Box> boxes = testing::random_tiling(random, shape, 8);
    if (random.bernoulli(0.5)) boxes[random.uniform_int(boxes.size())] = random_box(random, shape);
    std::vector<int> covered(places(whole(shape), shape).size(), 0);
    for (const Box& box : boxes) {
      for (const int64_t place : places(box, shape)) ++covered[static_cast<size_t>(place)];
    }
    const bool is_tiling =
        std::all_of(covered.begin(), covered.end(), [](int count) { return count == 1; });
    ASSERT_EQ(check_tiling(shape, boxes).is_ok(), is_tiling) << check_tiling(shape, boxes);
    tiled += is_tiling ? 1 : 0;
  }
  EXPECT_GT(tiled, 1000);
  EXPECT_LT(tiled, 3900);
}

// Quadratic work would take minutes here.
TEST(TilingTest, ManySlicesAndAGrid) {
  constexpr int64_t kSlices = 200'000;
  std::vector<Box> rows;
  for (int64_t i = kSlices; i-- > 0;) rows.push_back({{i, 0}, {1, 8}});
  EXPECT_OK(check_tiling({kSlices, 8}, rows));
  std::vector<Box> columns;
  for (int64_t i = kSlices; i-- > 0;) columns.push_back({{0, i}, {8, 1}});
  EXPECT_OK(check_tiling({8, kSlices}, columns));
  std::vector<Box> grid;
  for (int64_t i = 0; i < 400; ++i) {
    for (int64_t j = 0; j < 400; ++j) grid.push_back({{2 * i, 3 * j}, {2, 3}});
  }
  EXPECT_OK(check_tiling({800, 1200}, grid));
}

}  // namespace
}  // namespace perdure::checkpoint
