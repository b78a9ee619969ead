#pragma once
// Sleeping on the Clock seam.

#include "base/clock.h"
#include "base/stop_token.h"
#include "base/task.h"

namespace perdure::base {

// Ok at `when` (at once when it has passed), kCancelled when a stop is requested before; the
// token's own deadline gives kDeadlineExceeded. The clock outlives the wait.
Task<Status> sleep_until(Clock& clock, Nanos when, StopToken stop = {});
Task<Status> sleep_for(Clock& clock, Nanos duration, StopToken stop = {});

}  // namespace perdure::base
