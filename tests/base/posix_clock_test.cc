#include "base/posix_clock.h"

#include <vector>

#include "base/sleep.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::testing::ElementsAre;

TEST(PosixClockTest, CallsInOrderOfTimeAndNotWhenCancelled) {
  boost::asio::io_context context;
  PosixClock clock(context.get_executor());
  std::vector<int> calls;
  const Nanos start = clock.now();
  clock.call_at(start + 2_ms, [&] { calls.push_back(2); });
  clock.call_at(start, [&] { calls.push_back(1); });
  const TimerId cancelled = clock.call_at(start + 1_ms, [&] { calls.push_back(9); });
  EXPECT_EQ(clock.call_at(kNoDeadline, [] {}), TimerId::kNone);
  clock.cancel(cancelled);
  clock.cancel(cancelled);
  clock.cancel(TimerId::kNone);
  EXPECT_TRUE(calls.empty());
  context.run();
  EXPECT_THAT(calls, ElementsAre(1, 2));
  EXPECT_GE(clock.now(), start + 2_ms);
  EXPECT_GT(PosixClock().unix_ms(), 1'700'000'000'000);
}

// A timer whose handler is queued already when another callback of the same turn cancels it.
TEST(PosixClockTest, ACancelledCallIsNotCalledAlthoughItIsDue) {
  boost::asio::io_context context;
  PosixClock clock(context.get_executor());
  int calls = 0;
  TimerId second = TimerId::kNone;
  clock.call_at(clock.now(), [&] { clock.cancel(second); });
  second = clock.call_at(clock.now(), [&] { ++calls; });
  context.run();
  EXPECT_EQ(calls, 0);
}

TEST(PosixClockDeathTest, WithoutAnExecutorItOnlyTellsTheTime) {
  PosixClock clock;
  EXPECT_DEATH(clock.call_at(clock.now(), [] {}), "no executor");
}

}  // namespace
}  // namespace perdure::base
