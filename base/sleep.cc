#include "base/sleep.h"

#include <algorithm>

#include "base/waiter.h"

namespace perdure::base {

Task<Status> sleep_until(Clock& clock, Nanos when, StopToken stop) {
  CO_RETURN_IF_ERROR(stop.check(clock));
  Waiter<Status> waiter;
  const Timer timer(clock, std::min(when, stop.deadline()),
                    [&waiter] { waiter.complete(Status::ok()); });
  const StopCallback on_stop(stop, [&waiter] { waiter.complete(cancelled("stop requested")); });
  const Status status = co_await waiter.wait();
  if (status.is_ok() && when > stop.deadline()) {
    co_return deadline_exceeded("the deadline has passed");
  }
  co_return status;
}

Task<Status> sleep_for(Clock& clock, Nanos duration, StopToken stop) {
  return sleep_until(clock, saturating_add(clock.now(), duration), stop);
}

}  // namespace perdure::base
