#pragma once
// Condition: a condition variable for the coroutines of one component.
//
//   while (queue_.empty()) CO_RETURN_IF_ERROR(co_await not_empty_.wait(clock_, deadline));

#include <deque>

#include "base/clock.h"
#include "base/task.h"
#include "base/waiter.h"

namespace perdure::base {

// The component's thread only. Waiting coroutines resume in the order in which they came; after a
// wait the world has changed, so the caller looks at its condition again. Outlives its waits.
class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  ~Condition();

  // Ok when notified, kDeadlineExceeded at `deadline`.
  Task<Status> wait(Clock& clock, Nanos deadline);

  // For waits that something else is sure to end.
  Task<Status> wait();

  void notify_one();
  void notify_all();

 private:
  class Entry;
  std::deque<Entry*> waiting_;  // inside the frames of the waiting coroutines
};

// The value of `waiter`, or kDeadlineExceeded saying `what` was waited for.
Task<Status> wait_until(Waiter<Status>& waiter, Clock& clock, Nanos deadline, const char* what);

}  // namespace perdure::base
