#include "runtime/membership/lease_keeper.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::membership {
namespace {

using namespace base::literals;
using base::Step;

constexpr LeaseKeeperOptions kOptions{.lease = 1_s, .end_after = 60_s};

TEST(LeaseKeeperTest, HoldsWhileItIsAnswered) {
  LeaseKeeper keeper(kOptions, 10_s);
  EXPECT_EQ(keeper.verdict(10999_ms), LeaseVerdict::kHold);
  EXPECT_EQ(keeper.next_change(10_s), 11_s);
  keeper.acked(10500_ms);
  EXPECT_EQ(keeper.verdict(11499_ms), LeaseVerdict::kHold);
  EXPECT_EQ(keeper.verdict(11500_ms), LeaseVerdict::kFence);
}

TEST(LeaseKeeperTest, AnAckCountsFromWhenItsBeatWasSent) {
  LeaseKeeper keeper(kOptions, 0_s);
  keeper.acked(900_ms);
  keeper.acked(400_ms);  // an older one that was overtaken
  EXPECT_EQ(keeper.verdict(1800_ms), LeaseVerdict::kHold);
  EXPECT_EQ(keeper.verdict(1900_ms), LeaseVerdict::kFence);
}

TEST(LeaseKeeperTest, StepsKeepItGoingWithoutACoordinator) {
  LeaseKeeper keeper(kOptions, 0_s);
  for (uint64_t s = 1; s <= 100; ++s) {
    keeper.committed(Step(s), s * 900_ms);
    EXPECT_EQ(keeper.verdict(s * 900_ms), LeaseVerdict::kHold) << s;
  }
  EXPECT_EQ(keeper.verdict(90_s + 3599_ms), LeaseVerdict::kHold) << "four steps of 0.9 s";
  EXPECT_EQ(keeper.next_change(91_s), 90_s + 3600_ms);
  EXPECT_EQ(keeper.verdict(90_s + 3600_ms), LeaseVerdict::kEnd) << "the last ack is 93 s old";
}

TEST(LeaseKeeperTest, TheQuietTimeIsLearnedFromSteps) {
  LeaseKeeper keeper(kOptions, 0_s);
  keeper.committed(Step(1), 5_s);
  EXPECT_EQ(keeper.next_change(5_s), 6_s) << "one commit tells no step time";
  keeper.committed(Step(2), 7_s);
  EXPECT_EQ(keeper.next_change(7_s), 15_s);
  keeper.committed(Step(6), 9_s);  // four steps that were heard of at once
  EXPECT_EQ(keeper.next_change(9_s), 11_s);
  keeper.committed(Step(7), 9100_ms);
  EXPECT_EQ(keeper.next_change(9100_ms), 10100_ms) << "never shorter than the lease";
}

TEST(LeaseKeeperTest, OnlyRisingStepsCount) {
  LeaseKeeper keeper(kOptions, 0_s);
  keeper.committed(Step(5), 100_ms);
  keeper.committed(Step(5), 900_ms);
  keeper.committed(Step(4), 1000_ms);
  EXPECT_EQ(keeper.verdict(1100_ms), LeaseVerdict::kFence);
}

TEST(LeaseKeeperTest, FencedThenEnded) {
  LeaseKeeper keeper(kOptions, 0_s);
  EXPECT_EQ(keeper.verdict(1_s), LeaseVerdict::kFence);
  EXPECT_EQ(keeper.next_change(1_s), 60_s);
  EXPECT_EQ(keeper.verdict(59999_ms), LeaseVerdict::kFence);
  EXPECT_EQ(keeper.verdict(60_s), LeaseVerdict::kEnd);
  EXPECT_EQ(keeper.next_change(60_s), base::kNoDeadline);
}

TEST(LeaseKeeperTest, AnAckEndsTheFence) {
  LeaseKeeper keeper(kOptions, 0_s);
  EXPECT_EQ(keeper.verdict(30_s), LeaseVerdict::kFence);
  keeper.acked(29900_ms);
  EXPECT_EQ(keeper.verdict(30_s), LeaseVerdict::kHold);
}

TEST(LeaseKeeperTest, ExplainsItself) {
  LeaseKeeper keeper(kOptions, 0_s);
  keeper.acked(2200_ms);
  keeper.committed(Step(1), 0_s);
  EXPECT_EQ(keeper.explain(3400_ms), "no word from the coordinator for 1.2 s, no step for 3.4 s");
}

// Between `now` and next_change() the verdict does not change.
TEST(LeaseKeeperTest, NextChangeIsTheNextChange) {
  LeaseKeeper keeper(kOptions, 0_s);
  keeper.committed(Step(1), 100_ms);
  keeper.committed(Step(2), 900_ms);
  for (base::Nanos now = 900_ms; now < 70_s; now += 50_ms) {
    const base::Nanos next = keeper.next_change(now);
    if (next == base::kNoDeadline) continue;
    EXPECT_EQ(keeper.verdict(next - 1_ns), keeper.verdict(now));
    EXPECT_NE(keeper.verdict(next), keeper.verdict(now));
  }
}

}  // namespace
}  // namespace perdure::runtime::membership
