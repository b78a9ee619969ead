#pragma once
// Ledger: what a job reported, as its observer: each step once, in order, with the samples that it
// consumed. It outlives the coordinator, as files do.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/coordinator/job_observer.h"

namespace perdure::chaos::cluster {

class Ledger final : public runtime::coordinator::JobObserver {
 public:
  using OnActive = std::function<void(const recovery::EpochPlan&)>;
  void listen(OnActive on_active) { on_active_ = std::move(on_active); }

  void on_event(const base::Event& event) override;
  void on_prepared(base::Rank, const runtime::protocol::Prepared&) override {}
  void on_active(const recovery::EpochPlan& plan) override;
  runtime::coordinator::StepNews on_step(const runtime::protocol::StepReport& report) override;
  void on_evaluation(const runtime::protocol::EvaluationReport&) override {}
  void on_finished(base::Rank, const runtime::protocol::Finished& finished) override;
  base::Step steps_known() const override { return base::Step(steps_.size()); }

  const std::vector<runtime::protocol::StepReport>& steps() const { return steps_; }
  const std::vector<recovery::EpochPlan>& plans() const { return plans_; }
  const std::vector<std::string>& story() const { return story_; }
  uint64_t repeated() const { return repeated_; }
  uint64_t final_digest() const { return final_digest_; }
  // Empty when every sample was consumed once; else what is wrong.
  std::string problem(uint64_t steps, uint64_t samples_per_step) const;

 private:
  OnActive on_active_;
  std::vector<runtime::protocol::StepReport> steps_;
  std::vector<recovery::EpochPlan> plans_;
  std::vector<std::string> story_;  // events as text
  uint64_t repeated_ = 0;
  uint64_t final_digest_ = 0;
};

}  // namespace perdure::chaos::cluster
