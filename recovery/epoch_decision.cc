// What is decided once all have told their state, and the way from there to an active epoch.

#include <algorithm>

#include "recovery/epoch_machine.h"

namespace perdure::recovery {

std::vector<ToldState> EpochMachine::told_states() const {
  std::vector<ToldState> result;
  for (const auto& [worker, member] : members_) {
    if (member.state.has_value()) result.push_back({worker, *member.state});
  }
  return result;
}

void EpochMachine::on_collected() {
  collected_at_ = now_;
  resolve_and_decide();
}

void EpochMachine::resolve_and_decide() {
  const std::vector<ToldState> told = told_states();
  const Resolution resolution = resolve(told);
  if (!resolution.behind.empty() && phase_ == Phase::kCollecting) {
    phase_ = Phase::kResolving;
    phase_end_ = now_ + options_.phase_timeout;
    enter("resolve");
    asked_ = resolution.asked;  // those behind wait for it: it is late, not they
    waiting_ = {*asked_};
    explain(base::Event("epoch.roll_forward")
                .with("epoch", epoch_)
                .with("step", resolution.committed.step)
                .with("behind", resolution.behind.size())
                .with("vote_of", *resolution.asked));
    send({members_.at(*asked_).id}, OrderVote{});
    return;
  }
  decide(resolution, told);  // who is still behind after the vote was given has nothing of use
}

void EpochMachine::on(const VoteTold& event) {
  if (find_current(event.from) == nullptr || phase_ != Phase::kResolving) return;
  if (asked_ != event.from.worker) return;
  std::vector<PlanMember> behind;
  for (const auto& [worker, member] : members_) {
    if (member.state.has_value() && member.state->pending.epoch.value() != 0 &&
        member.state->pending == event.vote.id)
      behind.push_back(member.id);
  }
  if (behind.empty()) return;  // not what it was asked for
  asked_.reset();
  given_ = event.vote.id;
  phase_end_ = now_ + options_.phase_timeout;
  waiting_.clear();
  for (const PlanMember& member : behind) waiting_.insert(member.worker);
  send(std::move(behind), OrderApply{event.vote});
}

// The job and its last layout; without workers.
parallel::ReplanInput EpochMachine::replan_input() const {
  parallel::ReplanInput input;
  input.model = &options_.model;
  input.target_pipelines = options_.pipelines;
  input.target_stages = options_.stages;
  input.micro_batches = options_.micro_batches;
  input.grain = options_.grain;
  input.layer_cost = options_.layer_cost;
  if (last_active_.has_value()) {
    input.old_layout = last_active_->layout;
    for (const PlanMember& member : last_active_->members)
      input.old_workers.push_back(member.worker);
  }
  return input;
}

base::Result<std::vector<parallel::ReplanOption>> EpochMachine::options_for(
    const Resolution& resolution) const {
  parallel::ReplanInput input = replan_input();
  input.from_seed = resolution.committed.step.value() == 0;
  for (const auto& [worker, member] : members_) {
    if (!member.state.has_value()) continue;  // it came after the collection
    parallel::ReplanWorker entry{.worker = worker, .node = member.id.node};
    const bool usable =
        member.state->has_state != 0 && member.state->committed == resolution.committed;
    if (usable) {
      entry.held.reserve(member.state->tensors.size());
      for (const TensorDigest& d : member.state->tensors) entry.held.push_back(d.tensor);
    }
    input.workers.push_back(std::move(entry));
  }
  return parallel::replan(input);
}

void EpochMachine::decide(const Resolution& resolution, const std::vector<ToldState>& told) {
  enter("decide");
  if (members_.empty() && committed_.value() == 0) {
    phase_ = Phase::kGathering;  // nothing is lost: step 0 is made from the seed
    phase_end_ = now_ + options_.join_timeout;
    return;
  }
  if (members_.empty()) {
    on_state_missing(base::unavailable("no worker is left"));
    return;
  }
  if (wants_resume() && !resolution.any_state) {
    on_state_missing(base::not_found(
        options_.resume->step.has_value()
            ? "step " + std::to_string(options_.resume->step->value()) + " is to be resumed"
            : std::string("the newest checkpoint is to be resumed")));
    return;
  }
  // Steps are only ever one behind what was seen: the holders of the newest vote may all be gone.
  if (resolution.committed.step.next() < committed_) {
    on_state_missing(base::data_loss(
        "step " + std::to_string(committed_.value()) + " was committed, " +
        (resolution.any_state
             ? "but the survivors hold step " + std::to_string(resolution.committed.step.value())
             : std::string("but nobody who is left holds any state"))));
    return;
  }
  // Step 0 can be made from the seed; but an epoch ran, and may have come further than was seen.
  if (!resolution.any_state && last_active_.has_value() && (some_may_return_ || restores_ == 0)) {
    on_state_missing(base::unavailable("nobody who is left was in epoch " +
                                       std::to_string(last_active_->epoch.value())));
    return;
  }
  base::Result<HeldDigests> digests = agree_on_digests(options_.model, told, resolution.committed);
  if (!digests.is_ok()) {
    end_job(digests.status());
    return;
  }
  const auto options = options_for(resolution);
  if (!options.is_ok()) {
    on_state_missing(options.status());
    return;
  }
  before_ = std::move(digests).value();
  std::string considered;
  for (const parallel::ReplanOption& o : *options)
    considered += (considered.empty() ? "" : "; ") + o.name + ": " + o.reason;
  adopt(options->front(), resolution);
  explain(base::Event("epoch.decided")
              .with("epoch", epoch_)
              .with("why", change_why_)
              .with("option", options->front().name)
              .with("options", considered)
              .with("resume_step", resolution.committed.step)
              .with("ranks", plan_->members.size())
              .with("stand_by", members_.size() - plan_->members.size())
              .with("moves", plan_->moves.size())
              .with("move_bytes", options->front().transfer.bytes)
              .with("collect_ms", base::to_ms(collected_at_ - changed_at_)));
  actions_.push_back(RecordDecided{*plan_});
  enter("prepare");
  phase_ = Phase::kPreparing;
  phase_end_ = now_ + options_.load_timeout;
  waiting_.clear();
  for (const PlanMember& member : plan_->members) waiting_.insert(member.worker);
  send(plan_->members, OrderPrepare{*plan_});
}

void EpochMachine::adopt(const parallel::ReplanOption& option, const Resolution& resolution) {
  EpochPlan plan;
  plan.epoch = epoch_;
  plan.resume = resolution.committed;
  plan.source = plan.resume.step.value() == 0 ? StateSource::kSeed : StateSource::kSurvivors;
  plan.layout = option.layout;
  for (const base::WorkerId worker : option.workers) plan.members.push_back(members_.at(worker).id);
  plan.moves = option.transfer.moves;
  const base::Status legal = check_plan(options_.model, plan);
  CHECK(legal.is_ok()) << legal;
  set_plan(std::move(plan));
}

void EpochMachine::on(const Prepared& event) {
  Member* member = find_current(event.from);
  if (member == nullptr || phase_ != Phase::kPreparing) return;
  member->address = event.address;
  if (waiting_.erase(event.from.worker) != 0 && waiting_.empty()) on_prepared();
}

void EpochMachine::on_prepared() {
  prepared_at_ = now_;
  enter("transfer");
  phase_ = Phase::kLoading;
  phase_end_ = now_ + options_.load_timeout;
  OrderLoad load;
  for (const PlanMember& member : plan_->members) {
    load.addresses.push_back(members_.at(member.worker).address);
    waiting_.insert(member.worker);
  }
  send(plan_->members, std::move(load));
}

void EpochMachine::on(const Loaded& event) {
  Member* member = find_current(event.from);
  if (member == nullptr || phase_ != Phase::kLoading) return;
  member->loaded = event.report;
  if (waiting_.erase(event.from.worker) != 0 && waiting_.empty()) on_loaded();
}

void EpochMachine::on_loaded() {
  enter("gate");
  std::vector<LoadedReport> reports;
  for (const PlanMember& member : plan_->members)
    reports.push_back(*members_.at(member.worker).loaded);
  // From the seed there is nothing to compare with but each other.
  HeldDigests before = *before_;
  if (plan_->source == StateSource::kSeed)
    std::fill(before.by_tensor.begin(), before.by_tensor.end(), std::nullopt);
  const GateResult gate = check_gate(options_.model, *plan_, reports, before);
  if (gate.status.is_ok()) {
    activate();
    return;
  }
  explain(base::Event("epoch.refused").with("epoch", epoch_).with("why", gate.status.message()));
  if (!gate.culprit.has_value()) {
    end_job(gate.status);
    return;
  }
  const PlanMember culprit = plan_->members[gate.culprit->value()];
  actions_.push_back(EndMember{culprit, gate.status.message()});
  drop(culprit.worker);
  begin_change(gate.status.message());
}

void EpochMachine::activate() {
  actions_.push_back(RecordActive{epoch_});
  enter("go");
  phase_ = Phase::kActive;
  phase_end_ = base::kNoDeadline;
  last_active_ = plan_;
  attempts_ = 0;
  some_may_return_ = false;
  planned_ = false;
  with_offers_ = false;
  restores_ = 0;
  for (const PlanMember& member : plan_->members)
    members_.at(member.worker).does = MemberDoes::kRunning;
  explain(base::Event("epoch.active")
              .with("epoch", epoch_)
              .with("why", change_why_)
              .with("resume_step", plan_->resume.step)
              .with("collect_ms", base::to_ms(collected_at_ - changed_at_))
              .with("prepare_ms", base::to_ms(prepared_at_ - collected_at_))
              .with("load_ms", since(prepared_at_))
              .with("total_ms", since(changed_at_)));
  send(plan_->members, OrderGo{});
  changed_at_ = base::Nanos(0);
  consider_growth();
}

}  // namespace perdure::recovery
