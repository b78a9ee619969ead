#pragma once
// What a coordinator costs at a given size: a job in the simulated world that runs for a while,
// loses a node, and then one more worker.

#include <string>
#include <vector>

#include "chaos/cluster/sim_cluster.h"

namespace perdure::chaos::cluster {

// One change of the epoch. Times of work are those of ScaleOptions::meter; the others are virtual.
struct ChangeCost {
  std::string struck;
  base::Nanos decision{0};  // from the last state told to the plan
  base::Nanos work{0};      // of the coordinator, from the strike to the active epoch
  base::Nanos until_active{0};
  uint64_t frames = 0;  // in and out
  uint64_t bytes_out = 0;
};

struct ScaleResult {
  std::string problem;       // "" when all is well
  double steady_work = 0;    // seconds of the coordinator's code per virtual second
  double steady_frames = 0;  // per virtual second, in and out
  std::vector<ChangeCost> changes;
};

struct ScaleOptions {
  uint32_t nodes = 64;
  uint32_t workers_per_node = 8;
  base::Nanos steady = std::chrono::seconds(4);
  std::function<base::Nanos()> meter;  // real CPU time of this thread
};

ScaleResult run_scale(const ScaleOptions& options);

}  // namespace perdure::chaos::cluster
