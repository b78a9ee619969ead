#pragma once
// A clock that a test moves by hand, and a loop that runs coroutines to their end on it.

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/gate.h"
#include "base/task.h"

namespace perdure::base {

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  int64_t unix_ms() const override { return now_.count() / 1000'000; }
  TimerId call_at(Nanos when, UniqueFunction<void()> callback) override {
    if (when == kNoDeadline) return TimerId::kNone;
    const uint64_t id = ++id_last_;
    timers_.emplace(std::pair(when, id), std::move(callback));
    return static_cast<TimerId>(id);
  }
  void cancel(TimerId id) override {
    for (auto at = timers_.begin(); at != timers_.end(); ++at) {
      if (at->first.second != static_cast<uint64_t>(id)) continue;
      timers_.erase(at);
      return;
    }
  }

  // Moves to the earliest timer and calls it; false when there is none.
  bool fire_next() {
    if (timers_.empty()) return false;
    auto node = timers_.extract(timers_.begin());
    now_ = std::max(now_, node.key().first);
    node.mapped()();
    return true;
  }
  size_t timer_count() const { return timers_.size(); }

 private:
  Nanos now_ = 1_s;
  uint64_t id_last_ = 0;
  std::map<std::pair<Nanos, uint64_t>, UniqueFunction<void()>> timers_;
};

// Runs `task` to its end: ready work first, then the next timer. A task that nothing can wake is a
// failure.
template <typename T>
T run_task(boost::asio::io_context& context, ManualClock& clock, Task<T> task) {
  std::optional<T> result;
  Gate gate;
  CHECK(spawn(context.get_executor(), gate, store_result(std::move(task), result)).is_ok());
  do {
    context.restart();
    context.poll();
  } while (!result.has_value() && clock.fire_next());
  CHECK(result.has_value()) << "the task waits for ever";
  return std::move(*result);
}

}  // namespace perdure::base
