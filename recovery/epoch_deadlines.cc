// What time does to a machine: phases that take too long, growth that has waited long enough.

#include <algorithm>

#include "recovery/epoch_machine.h"

namespace perdure::recovery {

void EpochMachine::on(const Tick&) {
  if (now_ >= phase_end_) expire_phase();
  if (phase_ == Phase::kActive && now_ >= grow_at_) {
    grow_at_ = base::kNoDeadline;
    if (!would_gain()) return;
    enter("hold");
    phase_ = Phase::kHolding;
    phase_end_ = now_ + options_.hold_timeout;
    planned_ = true;
    change_why_ = "grow";
    explain(base::Event("epoch.hold").with("epoch", epoch_).with("why", change_why_));
    send(plan_->members, OrderHold{});
  }
}

std::string EpochMachine::missing_workers() const {
  std::string text;
  for (uint32_t w = 0; w < options_.pipelines * options_.stages; ++w) {
    if (!members_.contains(base::WorkerId(w)))
      text += (text.empty() ? "" : ", ") + std::to_string(w);
  }
  return text;
}

void EpochMachine::expire_phase() {
  phase_end_ = base::kNoDeadline;
  switch (phase_) {
    case Phase::kGathering:
      if (std::exchange(is_enough_, false)) {
        if (members_.size() >= size_t{options_.pipelines} * options_.stages) {
          begin_change("start");
        } else {
          phase_end_ = now_ + options_.join_timeout;  // some have died again
        }
        return;
      }
      end_job(base::deadline_exceeded("workers not ready in time: " + missing_workers()));
      return;
    case Phase::kRejoining:
      some_may_return_ = true;
      waiting_.clear();
      check_rejoined();
      return;
    case Phase::kWaiting:
      if (restore_what_there_is()) return;
      if (committed_.value() == 0 && std::exchange(some_may_return_, false)) {
        begin_change(change_why_);  // from the seed, then: no step was seen
      } else if (wants_resume()) {
        end_job(base::not_found(change_why_ + ", but there is nothing to go on from: " +
                                describe_offers(options_.model, told_states())));
      } else {
        end_job(base::data_loss(change_why_));
      }
      return;
    case Phase::kHolding:
      begin_change("grow (a hold was not agreed on in time)");
      return;
    default:
      break;
  }
  // Whoever has not answered is not to be relied on.
  const std::set<base::WorkerId> late = waiting_;
  const bool decided = phase_ != Phase::kCollecting;
  for (const base::WorkerId worker : late) {
    const std::string why = "no answer while " + std::string(to_string(phase_));
    actions_.push_back(EndMember{members_.at(worker).id, why});
    explain(base::Event("member.late").with("worker", worker).with("why", why));
    drop(worker);
  }
  if (decided) {
    begin_change("members did not answer in time");
  } else {
    on_collected();
  }
}

// Somebody is there who was not when the last plan was made.
void EpochMachine::consider_growth() {
  if (!options_.grow || phase_ != Phase::kActive) return;
  if (plan_->layout.ranks() >= options_.pipelines * options_.stages) return;
  const bool any_new = std::any_of(members_.begin(), members_.end(), [this](const auto& entry) {
    return !entry.second.state.has_value() && !is_member(entry.first, entry.second.id.incarnation);
  });
  if (any_new) grow_at_ = now_ + options_.grow_delay;
}

// Would the job be faster with those who stand by? Members hold what their stage needs.
bool EpochMachine::would_gain() const {
  std::map<base::WorkerId, std::vector<base::TensorId>> held;
  for (const parallel::PipelinePlace& pipeline : plan_->layout.pipelines) {
    for (const parallel::StagePlace& stage : pipeline.stages) {
      held[plan_->members[stage.rank.value()].worker] =
          parallel::tensors_of_layers(options_.model, stage.layer_begin, stage.layer_end);
    }
  }
  parallel::ReplanInput input = replan_input();
  for (const auto& [worker, member] : members_) {
    input.workers.push_back(
        {.worker = worker, .node = member.id.node, .held = std::move(held[worker])});
  }
  const auto options = parallel::replan(input);
  return options.is_ok() && options->front().name != "same";
}

void EpochMachine::give_back(base::Nanos time) {
  if (phase_end_ != base::kNoDeadline) phase_end_ += time;
}

base::Nanos EpochMachine::next_deadline() const { return std::min(phase_end_, grow_at_); }

}  // namespace perdure::recovery
