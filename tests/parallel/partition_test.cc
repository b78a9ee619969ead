#include "parallel/partition.h"

#include <algorithm>
#include <limits>

#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using testing::below;

// Tries every cut in lexicographic order and keeps the first of the best.
std::vector<uint32_t> brute_force(const std::vector<double>& costs, uint32_t parts) {
  const uint32_t n = static_cast<uint32_t>(costs.size());
  std::vector<uint32_t> borders(parts + 1);
  for (uint32_t p = 0; p < parts; ++p) borders[p] = p;
  borders[parts] = n;
  std::vector<uint32_t> best;
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    const double now = bottleneck(costs, borders);
    if (now < least) {
      least = now;
      best = borders;
    }
    uint32_t p = parts - 1;  // next combination
    while (p > 0 && borders[p] == n - (parts - p)) --p;
    if (p == 0) return best;
    ++borders[p];
    for (uint32_t q = p + 1; q < parts; ++q) borders[q] = borders[q - 1] + 1;
  }
}

TEST(PartitionTest, EqualsBruteForceOnRandomCosts) {
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 2000; ++round) {
    const uint32_t n = 1 + below(random, 10);
    const uint32_t parts = 1 + below(random, n);
    const bool integers = below(random, 2) == 0;  // many ties
    std::vector<double> costs;
    for (uint32_t i = 0; i < n; ++i) {
      costs.push_back(integers ? below(random, 4) : 1e-3 * below(random, 1000) + 0.017);
    }
    EXPECT_EQ(partition_minimax(costs, parts), brute_force(costs, parts)) << "round " << round;
  }
}

TEST(PartitionTest, KeepsAll30LayersOver4Stages) {
  const std::vector<uint32_t> borders = partition_minimax(std::vector<double>(30, 1.0), 4);
  EXPECT_EQ(borders.front(), 0u);
  EXPECT_EQ(borders.back(), 30u);
  EXPECT_EQ(bottleneck(std::vector<double>(30, 1.0), borders), 8.0);
}

TEST(PartitionTest, Keeps10LayersOver3Stages) {
  EXPECT_EQ(partition_minimax(std::vector<double>(10, 1.0), 3),
            (std::vector<uint32_t>{0, 2, 6, 10}));
}

TEST(PartitionTest, TiesGoToTheSmallestCuts) {
  EXPECT_EQ(partition_minimax({1, 1, 1, 1, 1}, 2), (std::vector<uint32_t>{0, 2, 5}));
  EXPECT_EQ(partition_minimax({0, 0, 5, 0, 0}, 3), (std::vector<uint32_t>{0, 1, 2, 5}));
}

TEST(PartitionTest, NoPartIsEmptyEvenWhenCostsAreZero) {
  const std::vector<uint32_t> borders = partition_minimax(std::vector<double>(5, 0.0), 5);
  EXPECT_EQ(borders, (std::vector<uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(PartitionDeathTest, ChecksItsArguments) {
  EXPECT_DEATH((void)partition_minimax({1, 2}, 3), "check failed");
  EXPECT_DEATH((void)partition_minimax({1, 2}, 0), "check failed");
  EXPECT_DEATH((void)partition_minimax({1, -2}, 1), "cost 1 is -2");
}

}  // namespace
}  // namespace perdure::parallel
