#pragma once
// JobDisplay: shows a person what the recorder hears.

#include "runtime/coordinator/run_recorder.h"
#include "runtime/launcher/progress.h"

namespace perdure::apps {

// Writes to stdout. The recorder outlives it.
class JobDisplay final : public runtime::coordinator::JobObserver {
 public:
  JobDisplay(runtime::coordinator::RunRecorder& recorder, uint64_t steps, uint64_t tokens_per_step,
             bool quiet);

  void on_event(const base::Event& event) override;
  void on_prepared(base::Rank rank, const runtime::protocol::Prepared& prepared) override;
  void on_active(const recovery::EpochPlan& plan) override { recorder_.on_active(plan); }
  runtime::coordinator::StepNews on_step(const runtime::protocol::StepReport& report) override;
  void on_evaluation(const runtime::protocol::EvaluationReport& report) override;
  void on_finished(base::Rank rank, const runtime::protocol::Finished& finished) override {
    recorder_.on_finished(rank, finished);
  }
  base::Step steps_known() const override { return recorder_.steps_known(); }

  // After the last step, before anything else is printed.
  void end_line() const;

 private:
  void say(const std::string& line);
  void show();

  runtime::coordinator::RunRecorder& recorder_;
  const bool quiet_;
  const bool terminal_;
  const uint64_t tokens_per_step_;
  runtime::launcher::Progress progress_;
};

// What a person is told of an event; "" for nothing.
std::string event_line(const base::Event& event);

}  // namespace perdure::apps
