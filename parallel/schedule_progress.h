#pragma once
// Runs a schedule without computing anything, to see whether all ranks come to the end. The second
// half of check_schedule, and the reason why a deadlock is found at planning time and not at 3 a.m.

#include "parallel/rank_topology.h"
#include "parallel/schedule_check.h"

namespace perdure::parallel {

// The schedule must have passed the rules that look at one rank or one link at a time.
// kInvalidArgument tells who waits for what, for each rank of one circle of waiting ranks.
base::Status check_progress(const JobTopology& job, const Schedule& schedule, SendModel sends);

}  // namespace perdure::parallel
