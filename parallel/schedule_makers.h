#pragma once
// Generators of schedules. Each is pure, and its result passes check_schedule
// (parallel/schedule_check.h).

#include "parallel/schedule.h"

namespace perdure::parallel {

// One forward, one backward (PipeDream-Flush; Narayanan et al., arXiv 2104.04473, section 2.2).
// Stage s of S warms up with min(m, S - s) forwards, m being the micro-batches of its pipeline; so
// it keeps at most that many stashes. Right for m < S too. All reductions follow the last backward,
// then vote and apply.
Schedule make_schedule_1f1b(const ModelSpec& model, const Layout& layout);

}  // namespace perdure::parallel
