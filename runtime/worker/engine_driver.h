#pragma once
// Seam: what a worker's control side wants of its engine. Real: ThreadedEngine (the engine runs on
// a thread of its own); in simulation: a fake that steps in virtual time.
//
// Threads: all calls and all listener calls are on the component's thread. Tasks suspend while the
// engine thread works. One task at a time, except fence(), which ends whatever is going on.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/task.h"
#include "recovery/epoch_types.h"
#include "runtime/protocol/epoch_messages.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/protocol/report_messages.h"

namespace perdure::runtime::worker {

class EngineListener {
 public:
  virtual ~EngineListener() = default;
  // Every rank: a step was committed, here. All ranks know the same numbers.
  virtual void on_step(const protocol::StepReport& report) = 0;
  virtual void on_evaluation(const protocol::EvaluationReport& report) = 0;
  // The engine has left its steps, other than by fence(). Ok: a hold was agreed on.
  virtual void on_stopped(base::Status why, base::Step committed) = 0;
  virtual void on_finished(const protocol::Finished& finished) = 0;
};

class EngineDriver {
 public:
  virtual ~EngineDriver() = default;

  // Who hears of the training. Outlives the driver. Called once, before anything else.
  virtual void listen(EngineListener& listener) = 0;
  // Makes the device. Errors: of the device, of the job.
  virtual base::Task<base::Result<std::string>> open(protocol::JobText job) = 0;

  // Leaves the epoch: aborts the fabric, ends a transfer, waits until the engine thread is quiet,
  // then says what is held. Tensors that had arrived whole in an unfinished transfer count as held.
  virtual base::Task<recovery::StateReport> fence(base::Epoch epoch) = 0;
  // The result of the vote that made the committed step; kNotFound when it is not there.
  virtual base::Result<recovery::VoteValue> vote() const = 0;
  // Commits the pending step with it. kFailedPrecondition when it is not the vote that is pending.
  virtual base::Task<base::Status> apply_vote(recovery::VoteValue vote) = 0;
  virtual recovery::StateReport state() const = 0;

  // What could be brought back without others (StateReport::offers); nearest and newest first.
  virtual base::Task<std::vector<recovery::StateOffer>> offers() = 0;
  // Drops state of other steps, then brings back these tensors, each from the nearest of its own
  // sources that is good. What is bad is not offered again.
  struct Restored {
    recovery::StateReport state;
    std::vector<std::string> bad_sources;  // where and why
  };
  virtual base::Task<Restored> restore(recovery::CommittedState target,
                                       std::vector<recovery::TensorDigest> tensors) = 0;

  // Makes the new epoch's communicators; gives the address for the others.
  // The plan's members are not told.
  virtual base::Task<base::Result<protocol::Prepared>> prepare(recovery::EpochPlan plan,
                                                               base::Rank rank) = 0;
  // Connects with its partners, moves tensors as the plan says, builds and loads the engine. There
  // may be addresses of others, too.
  virtual base::Task<base::Result<protocol::Loaded>> load(
      std::vector<protocol::RankAddress> addresses) = 0;
  // Starts training.
  virtual base::Status go() = 0;
  // Asks all ranks, by the next vote, to stop after that step. Idempotent.
  virtual void hold() = 0;
  // Leaves the epoch like fence(), at once and without an answer (lease over).
  virtual void abort(const base::Status& why) = 0;
  // Steps that were committed after `after` and are still known, oldest first.
  virtual std::vector<protocol::StepReport> reports(base::Step after) const = 0;
  // Ends the thread. Also called by the destructor.
  virtual base::Task<void> close() = 0;
};

}  // namespace perdure::runtime::worker
