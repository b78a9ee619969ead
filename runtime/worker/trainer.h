#pragma once
// Trainer: the training loop of one rank: learning rate, steps, evaluations, what to report.
// Blocks; runs on the engine thread.

#include <memory>
#include <optional>

#include "base/clock.h"
#include "kernels/device.h"
#include "parallel/memory_plan.h"
#include "runtime/collective/fabric.h"
#include "runtime/engine/step_engine.h"
#include "runtime/job/job_config.h"
#include "runtime/job/job_plan.h"
#include "runtime/rpc/job_messages.h"

namespace perdure::runtime::worker {

// On the engine thread. Only rank 0 reports: every rank knows the same.
class TrainListener {
 public:
  virtual ~TrainListener() = default;
  virtual void on_step(const rpc::StepReport& report) = 0;
  virtual void on_evaluation(const rpc::EvaluationReport& report) = 0;
};

struct TrainerOptions {
  base::Rank rank;
  job::JobConfig job;
  job::JobPlan plan;
};

// What this rank's process will need, predicted before anything is allocated.
parallel::WorkerMemory planned_memory(const TrainerOptions& options, const kernels::Device& device);

class Trainer {
 public:
  // Opens the data and allocates all memory. Errors: of the data files, of the device.
  static base::Result<std::unique_ptr<Trainer>> create(TrainerOptions options,
                                                       kernels::Device& device,
                                                       collective::Fabric& fabric,
                                                       base::Clock& clock);
  virtual ~Trainer() = default;
  // All steps of the job. Errors: those of StepEngine.
  virtual base::Status run(TrainListener& listener) = 0;
  // After run.
  virtual rpc::Finished finished() const = 0;
};

}  // namespace perdure::runtime::worker
