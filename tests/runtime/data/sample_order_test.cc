#include "runtime/data/sample_order.h"

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/data/data_cursor.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::data {
namespace {

TEST(SampleOrderTest, CountsWindowsThatShareABorderToken) {
  EXPECT_EQ(count_samples({.tokens = 0, .context = 4}), 0u);
  EXPECT_EQ(count_samples({.tokens = 4, .context = 4}), 0u);
  EXPECT_EQ(count_samples({.tokens = 5, .context = 4}), 1u);
  EXPECT_EQ(count_samples({.tokens = 8, .context = 4}), 1u);
  EXPECT_EQ(count_samples({.tokens = 9, .context = 4}), 2u);
}

TEST(SampleOrderTest, EveryDataEpochHasEverySampleOnce) {
  for (const uint64_t samples : {1u, 2u, 3u, 7u, 64u, 100u, 257u}) {
    const SampleOrder order({.samples = samples, .seed = testing::test_seed()});
    std::set<std::vector<uint64_t>> orders;
    for (uint64_t epoch = 0; epoch < 5; ++epoch) {
      std::vector<uint64_t> seen;
      for (uint64_t i = 0; i < samples; ++i) seen.push_back(order.sample(epoch * samples + i));
      orders.insert(seen);
      std::sort(seen.begin(), seen.end());
      for (uint64_t i = 0; i < samples; ++i) ASSERT_EQ(seen[i], i);
      EXPECT_EQ(order.data_epoch(epoch * samples + samples - 1), epoch);
    }
    if (samples >= 64) {
      EXPECT_EQ(orders.size(), 5u);
    }
  }
}

TEST(SampleOrderTest, SeedsGiveOtherOrders) {
  const SampleOrder a({.samples = 1000, .seed = 1});
  const SampleOrder b({.samples = 1000, .seed = 2});
  int equal = 0;
  for (uint64_t i = 0; i < 1000; ++i) equal += a.sample(i) == b.sample(i) ? 1 : 0;
  EXPECT_LT(equal, 20);
}

// Part of the promise that a job goes on as it began: the order may not change with the program.
TEST(SampleOrderTest, TheOrderIsFixedForever) {
  const SampleOrder order({.samples = 10, .seed = 42});
  std::vector<uint64_t> first;
  for (uint64_t i = 0; i < 20; ++i) first.push_back(order.sample(i));
  EXPECT_EQ(first,
            (std::vector<uint64_t>{1, 3, 2, 5, 7, 4, 8, 0, 6, 9, 8, 0, 2, 4, 9, 5, 3, 7, 1, 6}));
}

// What n workers read in one step, whoever reads which part.
std::vector<uint64_t> step_samples(const SampleOrder& order, DataCursor cursor, uint64_t batch,
                                   uint64_t workers) {
  std::vector<uint64_t> all;
  for (uint64_t w = 0; w < workers; ++w) {
    for (uint64_t i = batch * w / workers; i < batch * (w + 1) / workers; ++i) {
      all.push_back(order.sample(cursor.samples_consumed + i));
    }
  }
  return all;
}

TEST(SampleOrderTest, GrowingFromOneWorkerToTwoLosesNothing) {
  const SampleOrder order({.samples = 24, .seed = 7});
  DataCursor cursor;
  std::multiset<uint64_t> seen;
  for (int step = 0; step < 6; ++step) {
    for (const uint64_t s : step_samples(order, cursor, 4, step < 2 ? 1 : 2)) seen.insert(s);
    cursor = cursor.after(4);
  }
  EXPECT_EQ(seen.size(), 24u);
  EXPECT_EQ(std::set<uint64_t>(seen.begin(), seen.end()).size(), 24u);
}

TEST(SampleOrderTest, ResumingTwiceInOneEpochGoesOnWhereItWas) {
  const SampleOrder whole({.samples = 100, .seed = 3});
  std::vector<uint64_t> uninterrupted;
  for (uint64_t g = 0; g < 60; ++g) uninterrupted.push_back(whole.sample(g));
  std::vector<uint64_t> resumed;
  DataCursor committed;
  for (const uint64_t steps : {3u, 5u, 7u}) {  // three lives of the job
    const SampleOrder order({.samples = 100, .seed = 3});
    for (uint64_t step = 0; step < steps; ++step) {
      (void)step_samples(order, committed, 4, 2);  // a step that is not committed leaves no trace
      for (const uint64_t s : step_samples(order, committed, 4, 1 + step % 3)) {
        resumed.push_back(s);
      }
      committed = committed.after(4);
    }
  }
  EXPECT_EQ(resumed, uninterrupted);
}

TEST(SampleOrderTest, BatchesMayBeLargerThanTheData) {
  const SampleOrder order({.samples = 3, .seed = 1});
  const std::vector<uint64_t> samples = step_samples(order, {}, 8, 4);
  EXPECT_EQ(samples.size(), 8u);
  for (uint64_t s = 0; s < 3; ++s) EXPECT_GE(std::count(samples.begin(), samples.end(), s), 2);
}

TEST(SampleOrderDeathTest, NeedsSamples) {
  EXPECT_DEATH((void)SampleOrder({.samples = 0}), "check failed");
}

}  // namespace
}  // namespace perdure::runtime::data
