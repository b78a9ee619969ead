// Members come and go; when a change begins and what ends it. What is decided then:
// epoch_decision.cc.

#include "recovery/epoch_machine.h"

#include <algorithm>

namespace perdure::recovery {
namespace {

constexpr uint32_t kFailedToPrepareMax = 3;
constexpr uint32_t kAttemptsMax = 100;  // changes in a row that never became active

std::string name_of(base::WorkerId worker) { return "worker " + std::to_string(worker.value()); }

// Codes with which an engine ends because of others: the epoch is at fault, not the job.
bool is_recoverable(base::StatusCode code) {
  return code == base::StatusCode::kUnavailable || code == base::StatusCode::kDeadlineExceeded ||
         code == base::StatusCode::kAborted || code == base::StatusCode::kCancelled;
}

}  // namespace

EpochMachine::EpochMachine(MachineOptions options) : options_(std::move(options)) {
  CHECK_EQ(options_.layer_cost.size(), options_.model.layers.size());
}

void EpochMachine::begin(base::Nanos now, const std::optional<MachineMemory>& memory) {
  phase_end_ = now + options_.join_timeout;
  if (!memory.has_value()) return;
  committed_ = memory->committed;
  has_history_ = committed_.value() > 0;
  if (!memory->decided.has_value()) return;
  phase_ = Phase::kRejoining;
  phase_end_ = now + options_.rejoin_timeout;
  epoch_ = memory->decided->epoch;
  set_plan(*memory->decided);
  if (memory->active) last_active_ = plan_;
  for (const PlanMember& member : plan_->members) waiting_.insert(member.worker);
}

std::vector<MachineAction> EpochMachine::step(const MachineEvent& event, base::Nanos now) {
  now_ = now;
  if (phase_ != Phase::kOver) std::visit([this](const auto& e) { on(e); }, event);
  return std::exchange(actions_, {});
}

EpochMachine::Member* EpochMachine::find(const Speaker& from) {
  const auto found = members_.find(from.worker);
  if (found != members_.end() && found->second.id.incarnation == from.incarnation)
    return &found->second;
  ++stale_events_;
  return nullptr;
}

EpochMachine::Member* EpochMachine::find_current(const Speaker& from) {
  Member* member = find(from);
  if (member != nullptr && from.epoch == epoch_) return member;
  if (member != nullptr) ++stale_events_;
  return nullptr;
}

std::optional<base::Rank> EpochMachine::rank_of(base::WorkerId worker,
                                                base::Incarnation incarnation) const {
  const auto seat =
      std::lower_bound(seats_.begin(), seats_.end(), std::pair(worker, base::Rank(0)));
  if (seat == seats_.end() || seat->first != worker ||
      plan_->members[seat->second.value()].incarnation != incarnation)
    return std::nullopt;
  return seat->second;
}

void EpochMachine::set_plan(EpochPlan plan) {
  plan_ = std::move(plan);
  seats_.clear();
  for (uint32_t r = 0; r < plan_->members.size(); ++r)
    seats_.emplace_back(plan_->members[r].worker, base::Rank(r));
  std::sort(seats_.begin(), seats_.end());
  unfinished_ = plan_->members.size();
}

void EpochMachine::on(const MemberUp& event) {
  const auto known = members_.find(event.member.worker);
  if (known != members_.end()) {
    if (known->second.id.incarnation > event.member.incarnation) {
      ++stale_events_;
      return;
    }
    if (known->second.id.incarnation < event.member.incarnation) {
      on(MemberDown{event.member.worker, known->second.id.incarnation,
                    "replaced by a new process"});
      if (phase_ == Phase::kOver) return;
    }
  }
  Member& member = members_[event.member.worker];
  member.id = event.member;
  member.heard = std::max(member.heard, event.epoch);
  member.does = event.does;
  switch (phase_) {
    case Phase::kGathering:
      gather();
      break;
    case Phase::kRejoining:
      waiting_.erase(event.member.worker);
      check_rejoined();
      break;
    case Phase::kCollecting:
      if (!member.state.has_value()) {
        waiting_.insert(event.member.worker);
        send({member.id}, OrderFence{change_why_, with_offers_});
      }
      break;
    case Phase::kWaiting:
      begin_change("worker " + std::to_string(event.member.worker.value()) + " came");
      break;
    default:
      // A member that lost its way while its agent was cut off from us cannot go on with the
      // others.
      if (is_member(event.member.worker, event.member.incarnation)) {
        if ((phase_ == Phase::kActive || phase_ == Phase::kHolding) &&
            (event.does == MemberDoes::kNothing || event.epoch != epoch_))
          begin_change(name_of(event.member.worker) + " has left the epoch");
      } else {
        consider_growth();
      }
  }
}

void EpochMachine::gather() {
  const size_t needed = size_t{options_.pipelines} * options_.stages;
  if (members_.size() < needed) return;
  if (members_.size() >= std::max<size_t>(needed, options_.workers_expected)) {
    begin_change("start");
  } else if (!std::exchange(is_enough_, true)) {
    phase_end_ = now_ + options_.gather_grace;
  }
}

void EpochMachine::drop(base::WorkerId worker) {
  members_.erase(worker);
  waiting_.erase(worker);
}

void EpochMachine::on(const MemberDown& event) {
  const auto found = members_.find(event.worker);
  if (phase_ == Phase::kRejoining && found == members_.end()) {
    if (!is_member(event.worker, event.incarnation)) return;
    waiting_.erase(event.worker);  // it was lost while the coordinator was away
    check_rejoined();
    return;
  }
  if (found == members_.end() || found->second.id.incarnation != event.incarnation) return;
  const bool was_member = is_member(event.worker, event.incarnation);
  some_may_return_ = some_may_return_ || !event.has_ended;
  drop(event.worker);
  explain(base::Event("member.down")
              .with("worker", event.worker)
              .with("incarnation", event.incarnation)
              .with("how", event.how)
              .with("phase", to_string(phase_)));
  switch (phase_) {
    case Phase::kCollecting:
      if (waiting_.empty()) on_collected();
      break;
    case Phase::kRejoining:
      check_rejoined();
      break;
    case Phase::kResolving:
    case Phase::kRestoring:
      begin_change(name_of(event.worker) + " is lost: " + event.how);
      break;
    case Phase::kPreparing:
    case Phase::kLoading:
    case Phase::kActive:
    case Phase::kHolding:
      if (was_member) begin_change(name_of(event.worker) + " is lost: " + event.how);
      break;
    default:
      break;
  }
}

// After a restart: all members of the last epoch are accounted for, or time is over.
void EpochMachine::check_rejoined() {
  if (!waiting_.empty()) return;
  bool whole = last_active_.has_value();
  std::vector<PlanMember> loaded;
  for (const PlanMember& member : plan_->members) {
    const auto found = members_.find(member.worker);
    whole = whole && found != members_.end() &&
            found->second.id.incarnation == member.incarnation && found->second.heard == epoch_ &&
            found->second.does != MemberDoes::kNothing;
    if (whole && found->second.does == MemberDoes::kLoaded) loaded.push_back(member);
  }
  if (!whole) {
    begin_change("the coordinator was restarted and the epoch is not whole");
    return;
  }
  phase_ = Phase::kActive;
  phase_end_ = base::kNoDeadline;
  explain(
      base::Event("epoch.rejoined").with("epoch", epoch_).with("members", plan_->members.size()));
  if (!loaded.empty()) send(std::move(loaded), OrderGo{});
  send(plan_->members, OrderTellAgain{});
  consider_growth();
}

void EpochMachine::begin_change(const std::string& why) {
  const bool was_active = phase_ == Phase::kActive || phase_ == Phase::kHolding;
  if (was_active && !planned_) {
    ++recoveries_;
    if (fruitless_ >= options_.recoveries_max) {
      end_job(base::internal(std::to_string(fruitless_) +
                             " recoveries without a committed step; the last reason: " + why));
      return;
    }
    ++fruitless_;
  }
  if (++attempts_ > kAttemptsMax) {
    end_job(base::internal("no epoch became active in " + std::to_string(kAttemptsMax) +
                           " attempts; the last reason: " + why));
    return;
  }
  if (was_active || changed_at_.count() == 0 || phase_ == Phase::kWaiting) changed_at_ = now_;
  for (const auto& [worker, member] : members_) epoch_ = std::max(epoch_, member.heard);
  epoch_ = epoch_.next();
  plan_.reset();
  seats_.clear();
  before_.reset();
  asked_.reset();
  given_ = {};
  change_why_ = why;
  grow_at_ = base::kNoDeadline;
  is_enough_ = false;
  phase_ = Phase::kCollecting;
  phase_end_ = now_ + options_.phase_timeout;
  waiting_.clear();
  for (auto& [worker, member] : members_) {
    member.heard = epoch_;
    member.does = MemberDoes::kNothing;
    member.state.reset();
    member.address.clear();
    member.loaded.reset();
    member.finished = false;
    waiting_.insert(worker);
  }
  explain(base::Event("epoch.begin")
              .with("epoch", epoch_)
              .with("why", why)
              .with("workers", members_.size())
              .with("committed", committed_));
  enter("fence");
  send(all_members(), OrderFence{why, with_offers_});
  enter("collect");
  if (waiting_.empty()) on_collected();
}

void EpochMachine::on(const StateTold& event) {
  Member* member = find_current(event.from);
  if (member == nullptr) return;
  if (phase_ != Phase::kCollecting && phase_ != Phase::kResolving && phase_ != Phase::kRestoring) {
    // Its agent fenced it: the lease was over for a while.
    member->does = MemberDoes::kNothing;
    if (phase_ == Phase::kRejoining || phase_ == Phase::kGathering) return;
    if (phase_ != Phase::kWaiting && is_member(event.from.worker, event.from.incarnation)) {
      begin_change(name_of(event.from.worker) + " has left the epoch");
    } else {
      ++stale_events_;
    }
    return;
  }
  member->state = event.state;
  if (asked_.has_value()) return;  // first the vote
  // Told before the vote was given: its agent had fenced it once more while we were away.
  if (phase_ == Phase::kResolving && event.state.has_state != 0 && event.state.pending == given_)
    return;
  if (waiting_.erase(event.from.worker) == 0 || !waiting_.empty()) return;
  if (phase_ == Phase::kCollecting) {
    on_collected();
  } else {
    resolve_and_decide();
  }
}

void EpochMachine::on(const Stopped& event) {
  Member* member = find_current(event.from);
  if (member == nullptr || !is_member(event.from.worker, event.from.incarnation)) return;
  member->does = MemberDoes::kNothing;
  // Collecting: it is fenced anyway. Rejoining: seen when all are accounted for.
  if (phase_ == Phase::kCollecting || phase_ == Phase::kWaiting || phase_ == Phase::kRejoining)
    return;
  const std::string who = name_of(event.from.worker);
  // What it prepares is its own; who fails at it again and again only holds the others up.
  if (phase_ == Phase::kPreparing && is_recoverable(event.why.code()) &&
      ++member->failed_to_prepare >= kFailedToPrepareMax) {
    actions_.push_back(EndMember{member->id, "cannot prepare: " + event.why.message()});
    drop(event.from.worker);
    begin_change(who + " cannot prepare: " + event.why.message());
    return;
  }
  if (event.why.is_ok()) {
    begin_change(change_why_.empty() ? who + " holds" : change_why_);
  } else if (is_recoverable(event.why.code())) {
    begin_change(who + " left its step: " + event.why.to_string());
  } else {
    end_job(event.why.annotate(who));
  }
}

void EpochMachine::on(const StepSeen& event) {
  if (event.step <= committed_ || event.in < gone_back_in_) return;
  committed_ = event.step;
  const bool running = phase_ == Phase::kActive || phase_ == Phase::kHolding;
  if (running && find_current(event.from) != nullptr && committed_ > plan_->resume.step)
    fruitless_ = 0;
}

void EpochMachine::on(const MemberFinished& event) {
  Member* member = find_current(event.from);
  if (member == nullptr || (phase_ != Phase::kActive && phase_ != Phase::kHolding)) return;
  const bool is_new = !std::exchange(member->finished, true) &&
                      is_member(event.from.worker, event.from.incarnation);
  member->does = MemberDoes::kFinished;
  committed_ = std::max(committed_, event.step);
  if (is_new) --unfinished_;
  if (unfinished_ > 0) return;
  end_job(base::Status::ok());
}

void EpochMachine::on(const StopAsked& event) { end_job(event.why); }

void EpochMachine::end_job(base::Status status) {
  phase_ = Phase::kOver;
  phase_end_ = base::kNoDeadline;
  grow_at_ = base::kNoDeadline;
  actions_.push_back(EndJob{std::move(status)});
}

std::vector<PlanMember> EpochMachine::all_members() const {
  std::vector<PlanMember> result;
  for (const auto& [worker, member] : members_) result.push_back(member.id);
  return result;
}

void EpochMachine::send(std::vector<PlanMember> to, decltype(Send::order) order) {
  if (!to.empty()) actions_.push_back(Send{std::move(to), epoch_, std::move(order)});
}

void EpochMachine::enter(std::string_view name) { actions_.push_back(EnterPhase{name, epoch_}); }

void EpochMachine::explain(base::Event event) { actions_.push_back(Explain{std::move(event)}); }

}  // namespace perdure::recovery
