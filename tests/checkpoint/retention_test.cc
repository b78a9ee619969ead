#include "checkpoint/retention.h"

#include <algorithm>
#include <set>

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint64_t> removed(const std::vector<uint64_t>& committed, const RetentionRule& rule) {
  return steps_to_remove(committed, rule);
}

TEST(RetentionTest, KeepsTheLastOnes) {
  EXPECT_THAT(removed({10, 20, 30, 40}, {.keep_last = 2}), ElementsAre(10, 20));
  EXPECT_THAT(removed({10, 20}, {.keep_last = 2}), IsEmpty());
  EXPECT_THAT(removed({10}, {.keep_last = 2}), IsEmpty());
  EXPECT_THAT(removed({}, {.keep_last = 2}), IsEmpty());
}

TEST(RetentionTest, KeepsMultiplesAndNamedStepsToo) {
  EXPECT_THAT(removed({0, 10, 20, 30, 40, 50}, {.keep_last = 1, .keep_every = 20}),
              ElementsAre(10, 30));
  EXPECT_THAT(removed({1, 2, 3, 4, 5}, {.keep_last = 1, .keep_steps = {2, 9}}),
              ElementsAre(1, 3, 4));
}

// A12: no rule removes the newest.
TEST(RetentionTest, TheNewestIsNeverRemoved) {
  EXPECT_THAT(removed({10, 20, 30}, {.keep_last = 0}), ElementsAre(10, 20));
  EXPECT_THAT(removed({10}, {.keep_last = 0}), IsEmpty());
  EXPECT_THAT(removed({10, 20}, {.keep_last = 0, .keep_steps = {10}}), IsEmpty());
}

TEST(RetentionTest, AStepThatTwoEpochsSavedCountsOnce) {
  EXPECT_THAT(removed({10, 20, 20, 30, 30}, {.keep_last = 2}), ElementsAre(10));
  EXPECT_THAT(removed({10, 10, 20}, {.keep_last = 1}), ElementsAre(10));
}

TEST(RetentionTest, EveryStepIsKeptForAReasonOrRemoved) {
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 2000; ++round) {
    std::set<uint64_t> steps;
    while (steps.size() < random.uniform_int(12)) steps.insert(random.uniform_int(30));
    RetentionRule rule = {.keep_last = static_cast<uint32_t>(random.uniform_int(5)),
                          .keep_every = random.uniform_int(6)};
    if (random.bernoulli(0.5)) rule.keep_steps.push_back(random.uniform_int(30));
    const std::vector<uint64_t> committed(steps.begin(), steps.end());
    const std::vector<uint64_t> gone = steps_to_remove(committed, rule);
    ASSERT_TRUE(std::is_sorted(gone.begin(), gone.end()));
    for (size_t i = 0; i < committed.size(); ++i) {
      const uint64_t step = committed[i];
      const size_t newer = committed.size() - 1 - i;
      const bool is_kept = newer < std::max<size_t>(rule.keep_last, 1) ||
                           (rule.keep_every != 0 && step % rule.keep_every == 0) ||
                           std::count(rule.keep_steps.begin(), rule.keep_steps.end(), step) > 0;
      ASSERT_EQ(std::count(gone.begin(), gone.end(), step), is_kept ? 0 : 1) << step;
    }
  }
}

}  // namespace
}  // namespace perdure::checkpoint
