// What an EpochMachine does when nobody who is left holds some of the state: asks for what else
// there is, brings back the newest step that is whole, or waits for somebody who may come with it.

#include <algorithm>

#include "recovery/epoch_machine.h"
#include "recovery/restore_choice.h"

namespace perdure::recovery {
namespace {

constexpr uint32_t kRestoresMax = 16;  // in one change: each one that fails has found a bad source

}  // namespace

void EpochMachine::on_state_missing(base::Status why) {
  const bool any_told = !told_states().empty();
  if (any_told && !std::exchange(with_offers_, true)) {
    begin_change(why.message());
    return;
  }
  // A step is lost at most: waiting costs more. But when nobody of the last epoch can be heard, it
  // may have gone on unseen.
  const auto choice = best_restore();
  const bool may_be_far = some_may_return_ && !resolve(told_states()).any_state;
  if (choice.has_value() && choice->target.step.next() >= newest_known() && !may_be_far) {
    restore(*choice, why.message());
    return;
  }
  phase_ = Phase::kWaiting;
  phase_end_ = now_ + (some_may_return_ ? options_.wait_for_return : options_.wait_for_state);
  change_why_ = why.message();
  explain(base::Event("epoch.wait")
              .with("epoch", epoch_)
              .with("why", change_why_)
              .with("offers", describe_offers(options_.model, told_states())));
}

std::optional<RestoreChoice> EpochMachine::best_restore() const {
  std::optional<base::Step> only;
  if (wants_resume()) only = options_.resume->step;
  const std::vector<ToldState> told = told_states();
  auto choice = choose_restore(options_.model, told, only);
  // Step 0 can be made from the seed, and is hardly further away.
  if (!choice.has_value() && !told.empty() && newest_known().value() <= 1 && !wants_resume())
    choice.emplace();
  return choice;
}

// A survivor may hold a step that nobody has reported yet.
base::Step EpochMachine::newest_known() const {
  const Resolution resolution = resolve(told_states());
  return resolution.any_state ? std::max(committed_, resolution.committed.step) : committed_;
}

// The job is to go on from what an earlier run has left, and has not done so yet.
bool EpochMachine::wants_resume() const {
  return options_.resume.has_value() && !last_active_.has_value() && !has_history_;
}

// Nobody came. False: there is nothing to go on from.
bool EpochMachine::restore_what_there_is() {
  const auto choice = best_restore();
  if (!choice.has_value()) return false;
  restore(*choice, change_why_);
  return true;
}

void EpochMachine::restore(const RestoreChoice& choice, const std::string& why) {
  if (++restores_ > kRestoresMax) {
    end_job(base::data_loss("state could not be brought back in " + std::to_string(kRestoresMax) +
                            " attempts; the last reason: " + why));
    return;
  }
  enter("restore");
  const base::Step newest = newest_known();
  size_t tensors = 0;
  for (const auto& [worker, loads] : choice.loads) tensors += loads.size();
  explain(base::Event("epoch.restore")
              .with("epoch", epoch_)
              .with("why", why)
              .with("step", choice.target.step)
              .with("steps_lost",
                    std::max(newest, choice.target.step).value() - choice.target.step.value())
              .with("tensors", tensors)
              .with("readers", choice.loads.size())
              .with("live", choice.live));
  if (choice.target.step < newest) gone_back_in_ = epoch_;
  committed_ = choice.target.step;
  some_may_return_ = false;  // not waited for any longer
  change_why_ = why;
  phase_ = Phase::kRestoring;
  phase_end_ = now_ + options_.load_timeout;
  waiting_.clear();
  std::vector<PlanMember> others;
  for (auto& [worker, member] : members_) {
    if (!member.state.has_value()) continue;  // it came after the collection
    waiting_.insert(worker);
    const auto loads = choice.loads.find(worker);
    if (loads == choice.loads.end()) {
      others.push_back(member.id);
    } else {
      send({member.id}, OrderRestore{choice.target, loads->second});
    }
  }
  send(std::move(others), OrderRestore{choice.target, {}});
}

}  // namespace perdure::recovery
