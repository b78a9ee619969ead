#include "chaos/cluster/ledger.h"

#include "parallel/sample_mark.h"

namespace perdure::chaos::cluster {

using runtime::coordinator::StepNews;

void Ledger::on_event(const base::Event& event) {
  std::string text = event.kind();
  for (const auto& [key, value] : event.fields()) {
    text += " " + key + "=";
    text += std::visit(
        [](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::string>) {
            return v;
          } else {
            return std::to_string(v);
          }
        },
        value);
  }
  story_.push_back(std::move(text));
}

void Ledger::on_active(const recovery::EpochPlan& plan) {
  plans_.push_back(plan);
  if (on_active_) on_active_(plan);
}

StepNews Ledger::on_step(const runtime::protocol::StepReport& report) {
  if (report.step.value() > steps_.size() + 1) return StepNews::kGap;
  if (report.step.value() == steps_.size() + 1) {
    steps_.push_back(report);
    return StepNews::kNew;
  }
  ++repeated_;
  const bool same = steps_[report.step.value() - 1].digest_before == report.digest_before;
  return same ? StepNews::kRepeated : StepNews::kDiffers;
}

void Ledger::on_finished(base::Rank, const runtime::protocol::Finished& finished) {
  final_digest_ = finished.state_digest;
}

std::string Ledger::problem(uint64_t steps, uint64_t samples_per_step) const {
  if (steps_.size() != steps)
    return std::to_string(steps_.size()) + " steps in the ledger, not " + std::to_string(steps);
  uint64_t sample = 0;
  for (const runtime::protocol::StepReport& report : steps_) {
    const std::string name = "step " + std::to_string(report.step.value());
    if (report.first_sample != sample || report.sample_count != samples_per_step)
      return name + " consumed samples that are not its own";
    if (report.sample_sum != parallel::sample_marks(sample, samples_per_step))
      return name + " read a sample twice or never";
    sample += samples_per_step;
  }
  return "";
}

}  // namespace perdure::chaos::cluster
