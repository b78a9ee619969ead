#include "base/bounded_queue.h"

#include <memory>
#include <thread>

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;

TEST(BoundedQueueTest, ThreadsPassEverythingInOrder) {
  BoundedQueue<int> queue(3);
  std::thread producer([&queue] {
    for (int i = 0; i < 10000; ++i) CHECK(queue.push(int{i}, kNoDeadline).is_ok());
    queue.close();
  });
  for (int expected = 0;; ++expected) {
    const Result<int> item = queue.pop(kNoDeadline);
    if (!item.is_ok()) {
      EXPECT_EQ(item.status().code(), StatusCode::kCancelled);
      EXPECT_EQ(expected, 10000);
      break;
    }
    ASSERT_EQ(*item, expected);
  }
  producer.join();
}

TEST(BoundedQueueTest, FullEmptyAndClosedAreErrors) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_THAT(queue.pop(0_ms), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_OK(queue.try_push(std::make_unique<int>(1)));
  auto kept = std::make_unique<int>(2);
  EXPECT_THAT(queue.try_push(std::move(kept)), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(queue.push(std::move(kept), 0_ms), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_NE(kept, nullptr);
  queue.close();
  EXPECT_THAT(queue.push(std::move(kept), 0_ms), StatusIs(StatusCode::kCancelled));
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_OK(queue.pop(0_ms));
  EXPECT_THAT(queue.pop(0_ms), StatusIs(StatusCode::kCancelled));
}

TEST(BoundedQueueTest, CloseWakesWaitingThreads) {
  BoundedQueue<int> queue(1);
  std::thread waiter(
      [&queue] { EXPECT_THAT(queue.pop(kNoDeadline), StatusIs(StatusCode::kCancelled)); });
  queue.close();
  waiter.join();
}

}  // namespace
}  // namespace perdure::base
