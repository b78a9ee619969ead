#pragma once
// Estimates how long one step takes under a schedule: each rank runs its list in order, messages
// take time on the way but do not hold up the sender, collectives begin when the last member has
// come.

#include <vector>

#include "parallel/activation_plan.h"
#include "parallel/cluster_spec.h"
#include "parallel/schedule.h"

namespace perdure::parallel {

// Seconds (or any unit) of what one rank does. kBackward takes both halves.
struct StageTimes {
  double forward = 0.0;
  double backward_input = 0.0;
  double backward_weight = 0.0;
  double send_activation = 0.0;  // on the way to the next stage
  double send_gradient = 0.0;    // on the way to the previous stage
  std::vector<double> reduce{};  // by bucket of the rank; empty: no time
  double vote = 0.0;
  double apply = 0.0;
};

struct StepEstimate {
  double makespan = 0.0;
  std::vector<double> busy;         // per rank: computing, not waiting
  std::vector<double> compute_end;  // per rank: end of the last backward
  // The part of all ranks' time that is spent waiting, 0 to 1.
  double idle_fraction() const;
};

// times[r] is that of rank r. The schedule must have passed check_schedule (CHECKed: it ends).
StepEstimate simulate_step(const ModelSpec& model, const Layout& layout, const Schedule& schedule,
                           const std::vector<StageTimes>& times);

struct WorkloadOptions {
  BatchShape batch;
  double gradient_bytes_per_element = 8.0;  // of an all-reduce
};

// Times from the cost model and the cluster's numbers; all-reduces as rings over the slowest link
// among the holders. Needs cluster.devices() >= layout.ranks() (CHECK).
std::vector<StageTimes> estimate_times(const ModelSpec& model, const Layout& layout,
                                       const ClusterSpec& cluster, const WorkloadOptions& options);

}  // namespace perdure::parallel
