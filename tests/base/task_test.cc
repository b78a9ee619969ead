// Tasks, gates, stop tokens, conditions and sleeping: on a clock moved by hand.

#include "base/task.h"

#include <memory>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/gate.h"
#include "base/sleep.h"
#include "tests/base/manual_clock.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;

class TaskTest : public ::testing::Test {
 protected:
  template <typename T>
  T run(Task<T> task) {
    return run_task(context_, clock_, std::move(task));
  }

  ManualClock clock_;
  boost::asio::io_context context_;
};

Task<void> append_after(Clock& clock, Nanos delay, int value, std::vector<int>& out) {
  CHECK((co_await sleep_for(clock, delay)).is_ok());
  out.push_back(value);
}

Task<Status> close_gate(Gate& gate) {
  co_await gate.close();
  co_return Status::ok();
}

TEST_F(TaskTest, GateWaitsForAllTasks) {
  Gate gate;
  std::vector<int> order;
  ASSERT_OK(spawn(context_.get_executor(), gate, append_after(clock_, 20_ms, 2, order)));
  ASSERT_OK(spawn(context_.get_executor(), gate, append_after(clock_, 10_ms, 1, order)));
  EXPECT_EQ(gate.inside_count(), 2u);
  EXPECT_TRUE(order.empty());
  ASSERT_OK(run(close_gate(gate)));
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_EQ(gate.inside_count(), 0u);
  EXPECT_EQ(clock_.now(), 1020_ms);
  ASSERT_OK(run(close_gate(gate)));
  EXPECT_THAT(spawn(context_.get_executor(), gate, append_after(clock_, 0_ms, 3, order)),
              StatusIs(StatusCode::kCancelled));
}

TEST_F(TaskTest, SpawnedTasksStartInTheNextTurn) {
  Gate gate;
  std::vector<int> order;
  post(context_.get_executor(), [&] {
    EXPECT_OK(spawn(context_.get_executor(), gate, append_after(clock_, 0_ms, 2, order)));
    order.push_back(1);
  });
  ASSERT_OK(run(close_gate(gate)));
  while (clock_.fire_next()) context_.poll();
  EXPECT_EQ(order.front(), 1);
}

TEST_F(TaskTest, SleepEndsAtItsTime) {
  EXPECT_OK(run(sleep_for(clock_, 5_ms)));
  EXPECT_EQ(clock_.now(), 1005_ms);
  EXPECT_OK(run(sleep_until(clock_, 1_ms)));
  EXPECT_EQ(clock_.now(), 1005_ms);
}

TEST_F(TaskTest, SleepEndsAtTheDeadlineOfItsToken) {
  const StopToken token = StopToken().with_deadline(clock_.now() + 3_ms).with_deadline(kNoDeadline);
  EXPECT_THAT(run(sleep_for(clock_, 5_ms, token)), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_EQ(clock_.now(), 1003_ms);
  EXPECT_THAT(run(sleep_for(clock_, 0_ms, token)), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(TaskTest, SleepEndsWhenStopIsRequested) {
  StopSource source;
  const Timer stop(clock_, clock_.now() + 2_ms, [&source] { source.request_stop(); });
  EXPECT_THAT(run(sleep_for(clock_, 5_ms, source.token())), StatusIs(StatusCode::kCancelled));
  EXPECT_EQ(clock_.now(), 1002_ms);
  EXPECT_EQ(clock_.timer_count(), 0u);
  EXPECT_THAT(run(sleep_for(clock_, 5_ms, source.token())), StatusIs(StatusCode::kCancelled));
}

TEST_F(TaskTest, AnIoContextTakesItsWaitingTasksWithIt) {
  struct Probe {
    explicit Probe(bool* flag) : destroyed(flag) {}
    ~Probe() { *destroyed = true; }
    bool* destroyed;
  };
  struct Waits {
    static Task<void> for_ever(Clock& clock, std::unique_ptr<Probe>) {
      (void)co_await sleep_for(clock, 1000_s);
    }
  };
  Gate gate;
  bool destroyed = false;
  {
    boost::asio::io_context context;
    ASSERT_OK(spawn(context.get_executor(), gate,
                    Waits::for_ever(clock_, std::make_unique<Probe>(&destroyed))));
    context.poll();
    EXPECT_EQ(clock_.timer_count(), 1u);
    EXPECT_FALSE(destroyed);
  }
  EXPECT_TRUE(destroyed);
  EXPECT_EQ(gate.inside_count(), 0u);
  EXPECT_EQ(clock_.timer_count(), 0u);
}

TEST(StopTokenTest, CallbacksRunOnceInOrder) {
  StopSource source;
  std::vector<int> calls;
  auto first = std::make_unique<StopCallback>(source.token(), [&] { calls.push_back(1); });
  StopCallback second(source.token(), [&] { calls.push_back(2); });
  StopCallback third(source.token(), [&] { calls.push_back(3); });
  StopCallback never(StopToken(), [&] { calls.push_back(9); });
  first.reset();
  source.request_stop();
  source.request_stop();
  StopCallback late(source.token(), [&] { calls.push_back(4); });
  EXPECT_THAT(calls, ElementsAre(2, 3, 4));
}

TEST(StopTokenTest, ACallbackMayDestroyItself) {
  StopSource source;
  std::unique_ptr<StopCallback> callback;
  callback = std::make_unique<StopCallback>(source.token(), [&callback] { callback.reset(); });
  source.request_stop();
  EXPECT_EQ(callback, nullptr);
}

TEST_F(TaskTest, AWaiterKeepsTheFirstValue) {
  Waiter<int> waiter;
  waiter.complete(1);
  waiter.complete(2);
  EXPECT_TRUE(waiter.is_completed());
  EXPECT_EQ(run(waiter.wait()), 1);
}

TEST_F(TaskTest, ConditionTimesOut) {
  Condition condition;
  EXPECT_THAT(run(condition.wait(clock_, clock_.now() + 1_ms)),
              StatusIs(StatusCode::kDeadlineExceeded));
  const Timer notify(clock_, clock_.now() + 1_ms, [&] { condition.notify_all(); });
  EXPECT_OK(run(condition.wait(clock_, clock_.now() + 2_ms)));
  EXPECT_EQ(clock_.timer_count(), 0u);
}

Task<void> produce(TaskQueue<int>& queue, int count) {
  for (int i = 0; i < count; ++i) CHECK((co_await queue.push(i, kNoDeadline)).is_ok());
  queue.close();
}

Task<Result<std::vector<int>>> consume(TaskQueue<int>& queue) {
  std::vector<int> items;
  while (true) {
    const Result<int> item = co_await queue.pop(kNoDeadline);
    if (item.status().code() == StatusCode::kCancelled) co_return items;
    CO_RETURN_IF_ERROR(item.status());
    items.push_back(*item);
  }
}

TEST_F(TaskTest, TaskQueuePushesBackAndDrains) {
  Gate gate;
  TaskQueue<int> queue(2, clock_);
  ASSERT_OK(spawn(context_.get_executor(), gate, produce(queue, 5)));
  context_.poll();
  EXPECT_EQ(queue.size(), 2u);
  EXPECT_THAT(queue.try_push(9), StatusIs(StatusCode::kResourceExhausted));
  ASSERT_OK_AND_ASSIGN(const std::vector<int> items, run(consume(queue)));
  EXPECT_THAT(items, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(queue.try_push(9), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(run(queue.push(9, kNoDeadline)), StatusIs(StatusCode::kCancelled));
}

TEST_F(TaskTest, TaskQueueWaitsHaveDeadlines) {
  TaskQueue<int> queue(1, clock_);
  EXPECT_THAT(run(queue.pop(clock_.now() + 1_ms)), StatusIs(StatusCode::kDeadlineExceeded));
  ASSERT_OK(run(queue.push(1, kNoDeadline)));
  EXPECT_THAT(run(queue.push(2, clock_.now() + 1_ms)), StatusIs(StatusCode::kDeadlineExceeded));
}

Task<void> throws() {
  co_await boost::asio::this_coro::executor;
  throw std::runtime_error("oops");
}

TEST(TaskDeathTest, AnExceptionThatLeavesATaskIsABug) {
  EXPECT_DEATH(
      {
        boost::asio::io_context context;
        Gate gate;
        (void)spawn(context.get_executor(), gate, throws());
        context.run();
      },
      "an exception left a task: oops");
}

}  // namespace
}  // namespace perdure::base
