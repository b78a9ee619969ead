#pragma once
// Replanner: given the workers that are there and what they hold, the layouts that the job could go
// on with, priced. Pure: all processes come to the same list.
//
// Options, by name:
//   "same"       the old layout, lost roles taken by stand-bys
//   "drop"       broken pipelines are dropped, their micro-batches spread over the others
//   "recut"      a broken pipeline goes on with its survivors, stages cut again
//   "merge"      the survivors of broken pipelines form one pipeline (or more, of the target's
//   depth) "fresh"      pipelines of near equal depth over all workers (also: the way to grow)
// An option that is the same layout as one before it in this list is left out.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "parallel/layout.h"
#include "parallel/transfer_plan.h"

namespace perdure::parallel {

struct ReplanWorker {
  base::WorkerId worker;
  base::NodeId node;
  std::vector<base::TensorId> held;  // usable at the resume step, ascending
};

struct ReplanInput {
  const ModelSpec* model = nullptr;
  uint32_t target_pipelines = 1;  // never more ranks than target_pipelines * target_stages
  uint32_t target_stages = 1;
  uint32_t micro_batches = 1;
  uint32_t grain = 1;
  std::vector<double> layer_cost;           // relative, one per layer
  std::vector<ReplanWorker> workers;        // ascending by worker; all of them usable
  Layout old_layout;                        // no pipelines: the first layout of the job
  std::vector<base::WorkerId> old_workers;  // by rank of old_layout; some may be gone
  // The state is that of the seed (step 0): every worker can make every tensor.
  bool from_seed = false;
  double seconds_per_cost = 1.0;  // what one unit of layer_cost takes for one micro-batch
  double bytes_per_second = 1e9;  // of a transfer between two workers
};

struct ReplanOption {
  std::string name;
  Layout layout;
  std::vector<base::WorkerId> workers;  // by rank
  TransferPlan transfer;
  double step_seconds = 0.0;   // predicted: slowest pipeline, bubbles included
  double pause_seconds = 0.0;  // predicted: the transfer
  std::string reason;          // one line for people
};

// Best first: by step time (differences under 2 % count as equal), then pause, then workers that
// keep their role, then name. kDataLoss when state is gone (names the layers), kResourceExhausted
// when there is nobody to train.
base::Result<std::vector<ReplanOption>> replan(const ReplanInput& input);

}  // namespace perdure::parallel
