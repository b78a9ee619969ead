#pragma once
// Trainer: the training loop of one rank in one epoch: learning rate, steps, evaluations, what to
// report. Begins at the step that is committed. Blocks; runs on the engine thread.

#include <memory>

#include "base/clock.h"
#include "kernels/device.h"
#include "parallel/memory_plan.h"
#include "recovery/epoch_types.h"
#include "runtime/collective/fabric.h"
#include "runtime/data/data_source.h"
#include "runtime/engine/step_engine.h"
#include "runtime/job/job_config.h"
#include "runtime/job/job_plan.h"
#include "runtime/protocol/report_messages.h"
#include "runtime/worker/snapshot_keeper.h"

namespace perdure::runtime::worker {

// On the engine thread. Every rank reports: all know the same numbers.
class TrainListener {
 public:
  virtual ~TrainListener() = default;
  virtual void on_step(const protocol::StepReport& report) = 0;
  virtual void on_evaluation(const protocol::EvaluationReport& report) = 0;
};

struct TrainerOptions {
  base::Rank rank;
  base::Epoch epoch;
  job::JobConfig job;
  job::JobPlan plan;                         // layout and schedule are those of the epoch
  const std::atomic<bool>* leave = nullptr;  // see engine::EngineOptions
};

// What outlives an epoch. All of it outlives the trainer.
struct TrainerParts {
  const data::DataSource& data;
  engine::RankMemory& memory;
  collective::Fabric& fabric;
  SnapshotKeeper& snapshots;
  base::Clock& clock;
};

// How a run ended well.
enum class TrainEnd : uint8_t {
  kFinished,  // all steps of the job
  kHeld,      // all ranks agreed to stop here
};

// What this rank's process will need, predicted before anything is allocated.
parallel::WorkerMemory planned_memory(const TrainerOptions& options, const kernels::Device& device);
engine::StoreOptions store_options(const job::JobConfig& job, const job::JobPlan& plan);

class Trainer {
 public:
  // Errors: those of StepEngine::create.
  static base::Result<std::unique_ptr<Trainer>> create(TrainerOptions options,
                                                       const TrainerParts& parts);
  virtual ~Trainer() = default;

  // An evaluation that is due at the committed step is run (again) first. Errors: those of
  // StepEngine; kDataLoss when too many steps in a row were skipped.
  virtual base::Result<TrainEnd> run(TrainListener& listener) = 0;
  // Commits the pending step, and reports it. Errors: as StepEngine::apply_vote.
  virtual base::Status apply_vote(const recovery::VoteValue& vote, TrainListener& listener) = 0;
  // The vote that this rank lacks; epoch 0: none.
  virtual recovery::VoteId pending() const = 0;
  // Any thread.
  virtual void request_hold() = 0;
  // After a run that finished.
  virtual const protocol::Finished& finished() const = 0;
};

}  // namespace perdure::runtime::worker
