#pragma once
// What happens in a job, in order, for whoever records or shows it.

#include "base/event_log.h"
#include "recovery/epoch_types.h"
#include "runtime/protocol/epoch_messages.h"
#include "runtime/protocol/report_messages.h"

namespace perdure::runtime::coordinator {

// What a report of a step was worth. A step that is run again after a failure is reported again.
enum class StepNews : uint8_t {
  kNew,       // the next one
  kRepeated,  // known, with the same digest
  kGap,       // steps before it are missing
  kDiffers,   // known, with another digest: the same step has given other bits
};

// Called on the component's thread; must not block for long.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  // A decision, with its evidence.
  virtual void on_event(const base::Event& event) = 0;
  virtual void on_prepared(base::Rank rank, const protocol::Prepared& prepared) = 0;
  virtual void on_active(const recovery::EpochPlan& plan) = 0;
  virtual StepNews on_step(const protocol::StepReport& report) = 0;
  virtual void on_evaluation(const protocol::EvaluationReport& report) = 0;
  virtual void on_finished(base::Rank rank, const protocol::Finished& finished) = 0;
  // Newest step that is known; after a restart of the coordinator what was found.
  virtual base::Step steps_known() const = 0;
};

}  // namespace perdure::runtime::coordinator
