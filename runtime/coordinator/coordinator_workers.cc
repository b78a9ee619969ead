// What workers say (through their agents), and what the machine orders.

#include <set>

#include "base/fault_point.h"
#include "base/log.h"
#include "parallel/rank_partners.h"
#include "recovery/epoch_fields.h"
#include "runtime/coordinator/coordinator.h"

namespace perdure::runtime::coordinator {
namespace {

constexpr base::Nanos kAskEvery = std::chrono::milliseconds(500);
constexpr uint32_t kEndAsksMax = 10;

recovery::Speaker speaker(const protocol::WorkerMessage& m) {
  return {.worker = m.worker, .incarnation = m.incarnation, .epoch = m.epoch};
}

}  // namespace

std::vector<recovery::MachineAction> Coordinator::ask_machine(const recovery::MachineEvent& event) {
  const bool undecided = !machine_.plan().has_value();
  const auto work_clock = [this] {
    return options_.work_clock ? options_.work_clock() : clock_.now();
  };
  const base::Nanos begin = undecided ? work_clock() : base::Nanos(0);
  std::vector<recovery::MachineAction> actions = machine_.step(event, clock_.now());
  if (undecided && machine_.plan().has_value()) {
    decision_time_ = work_clock() - begin;
    observer_.on_event(base::Event("epoch.measured")
                           .with("epoch", machine_.epoch())
                           .with("left_t_ms", base::to_ms(std::exchange(left_last_, {})))
                           .with("decide_ms", base::to_ms(decision_time_)));
  }
  return actions;
}

void Coordinator::feed(const recovery::MachineEvent& event) {
  if (end_.has_value()) return;
  for (const recovery::MachineAction& action : ask_machine(event)) {
    if (end_.has_value()) return;
    std::visit([this](const auto& a) { carry_out(a); }, action);
  }
}

bool Coordinator::record(RecordKind kind, rpc::Payload payload) {
  FAULT_POINT("journal.before");
  const base::Status written = journal_.append({kind, std::move(payload)});
  FAULT_POINT("journal.after");
  if (!written.is_ok()) end(written.annotate("the journal cannot be written"));
  return written.is_ok();
}

void Coordinator::record_progress() {
  if (end_.has_value() || machine_.committed() <= progress_) return;
  progress_ = machine_.committed();
  record(RecordKind::kProgress, rpc::to_bytes(progress_));
}

void Coordinator::carry_out(const recovery::EnterPhase& enter) {
  base::fault_time.epoch.store(enter.epoch.value(), std::memory_order_relaxed);
  base::fault_time.step.store(machine_.committed().next().value(), std::memory_order_relaxed);
  FAULT_POINT("coordinator." + std::string(enter.name));
  observer_.on_event(
      base::Event("epoch.phase").with("epoch", enter.epoch).with("phase", enter.name));
}

void Coordinator::carry_out(const recovery::RecordDecided& decided) {
  record_progress();
  record(RecordKind::kDecided, rpc::to_bytes(decided.plan));
}

void Coordinator::carry_out(const recovery::RecordActive& active) {
  if (record(RecordKind::kActive, rpc::to_bytes(active.epoch)))
    observer_.on_active(*machine_.plan());
}

void Coordinator::carry_out(const recovery::EndMember& ended) {
  Node& node = nodes_[ended.member.node];
  node.workers.erase(ended.member.worker);
  const protocol::EndWorker message{.target = {ended.member.worker, ended.member.incarnation},
                                    .why = ended.why};
  if (node.session != nullptr) tell(*node.session, protocol::to_frame(message, stamp()));
}

void Coordinator::carry_out(const recovery::Explain& explain) { observer_.on_event(explain.event); }

void Coordinator::carry_out(const recovery::EndJob& job) { end(job.status); }

void Coordinator::carry_out(const recovery::Send& send) {
  const auto deliver = [&](const auto& message) {
    send_to(send, std::decay_t<decltype(message)>::kType,
            [payload = rpc::to_bytes(message)](const auto&) { return payload; });
  };
  if (const auto* fence = std::get_if<recovery::OrderFence>(&send.order)) {
    deliver(protocol::Fence{.why = fence->why,
                            .reported = observer_.steps_known(),
                            .with_offers = static_cast<uint8_t>(fence->with_offers ? 1 : 0)});
  } else if (std::holds_alternative<recovery::OrderVote>(send.order)) {
    deliver(protocol::AskVote{});
  } else if (const auto* apply = std::get_if<recovery::OrderApply>(&send.order)) {
    deliver(protocol::ApplyVote{.vote = apply->vote});
  } else if (const auto* restore = std::get_if<recovery::OrderRestore>(&send.order)) {
    deliver(protocol::Restore{.target = restore->target, .tensors = restore->tensors});
  } else if (const auto* prepare = std::get_if<recovery::OrderPrepare>(&send.order)) {
    send_prepare(send, *prepare);
  } else if (const auto* load = std::get_if<recovery::OrderLoad>(&send.order)) {
    send_load(send, *load);
  } else if (std::holds_alternative<recovery::OrderGo>(send.order)) {
    deliver(protocol::Go{.reported = observer_.steps_known()});
    // Rank 0 may be new, and know nothing of the last step of the epoch before.
    if (observer_.steps_known() < machine_.plan()->resume.step)
      deliver(protocol::AskReports{.reported = observer_.steps_known()});
  } else if (std::holds_alternative<recovery::OrderTellAgain>(send.order)) {
    deliver(protocol::AskReports{.reported = observer_.steps_known()});
  } else {
    deliver(protocol::Hold{});
  }
}

// What all are told alike is encoded once.
void Coordinator::send_prepare(const recovery::Send& send, const recovery::OrderPrepare& order) {
  recovery::EpochPlan plan = order.plan;
  plan.members.clear();
  const rpc::Payload shared = rpc::to_bytes(plan);
  send_to(send, protocol::Prepare::kType, [&](const std::vector<protocol::WorkerTarget>& targets) {
    protocol::Prepare message;
    for (const protocol::WorkerTarget& t : targets) {
      const auto rank = machine_.rank_of(t.worker, t.incarnation);
      CHECK(rank.has_value()) << "worker " << t.worker << " is no member";
      message.ranks.push_back({t.worker, t.incarnation, *rank});
    }
    const rpc::Payload ranks = rpc::to_bytes(message.ranks);
    rpc::Payload payload = shared;
    payload.insert(payload.end(), ranks.begin(), ranks.end());
    return payload;
  });
}

void Coordinator::send_load(const recovery::Send& send, const recovery::OrderLoad& order) {
  const recovery::EpochPlan& plan = *machine_.plan();
  const auto partners = parallel::rank_partners(options_.machine.model, plan.layout, plan.moves);
  send_to(send, protocol::Load::kType, [&](const std::vector<protocol::WorkerTarget>& targets) {
    std::set<base::Rank> needed;
    for (const protocol::WorkerTarget& t : targets) {
      const auto rank = machine_.rank_of(t.worker, t.incarnation);
      CHECK(rank.has_value()) << "worker " << t.worker << " is no member";
      needed.insert(partners[rank->value()].begin(), partners[rank->value()].end());
    }
    protocol::Load message;
    for (const base::Rank rank : needed)
      message.addresses.push_back({rank, order.addresses[rank.value()]});
    return rpc::to_bytes(message);
  });
}

// An order is of use as long as its phase lasts; one that starts training, for ever.
uint32_t Coordinator::budget_ms() const {
  const base::Nanos end = machine_.next_deadline();
  if (end == base::kNoDeadline) return 0;
  const base::Nanos left = std::max(end - clock_.now(), base::Nanos(1'000'000));
  return static_cast<uint32_t>(left / std::chrono::milliseconds(1));
}

void Coordinator::send_to(const recovery::Send& send, protocol::MessageType type,
                          const PayloadOf& payload_of) {
  std::map<base::NodeId, protocol::ToWorkers> by_node;
  for (const recovery::PlanMember& member : send.to)
    by_node[member.node].targets.push_back({member.worker, member.incarnation});
  for (auto& [id, message] : by_node) {
    Session* session = nodes_[id].session;
    if (session == nullptr) continue;
    message.type = type;
    message.payload = payload_of(message.targets);
    rpc::Stamp with = stamp();
    with.epoch = send.epoch;
    with.budget_ms = budget_ms();
    tell(*session, protocol::to_frame(message, with));
  }
}

void Coordinator::hear(const protocol::WorkerMessage& message) {
  const base::Status heard = hear_report(message);
  if (!heard.is_ok()) {
    LOG_WARNING("coordinator", "message refused", KV("worker", message.worker),
                KV("type", static_cast<int>(message.type)), KV("why", heard.to_string()));
  }
}

base::Status Coordinator::hear_report(const protocol::WorkerMessage& m) {
  switch (m.type) {
    case protocol::MessageType::kStateTold: {
      ASSIGN_OR_RETURN(auto told, rpc::from_bytes<protocol::StateTold>(m.payload));
      for (const protocol::StepReport& report : told.reports) on_step(speaker(m), report);
      for (const std::string& bad : told.bad_sources) {
        observer_.on_event(
            base::Event("restore.bad_source").with("worker", m.worker).with("why", bad));
      }
      if (m.epoch == machine_.epoch())
        left_last_ = std::max(left_last_, base::Nanos(static_cast<int64_t>(told.left_ns)));
      feed(recovery::StateTold{speaker(m), std::move(told.state)});
      return base::Status::ok();
    }
    case protocol::MessageType::kVoteTold: {
      ASSIGN_OR_RETURN(auto told, rpc::from_bytes<protocol::VoteTold>(m.payload));
      feed(recovery::VoteTold{speaker(m), std::move(told.vote)});
      return base::Status::ok();
    }
    case protocol::MessageType::kPrepared: {
      ASSIGN_OR_RETURN(auto prepared, rpc::from_bytes<protocol::Prepared>(m.payload));
      const auto rank = machine_.rank_of(m.worker, m.incarnation);
      if (rank.has_value()) observer_.on_prepared(*rank, prepared);
      feed(recovery::Prepared{speaker(m), std::move(prepared.address)});
      return base::Status::ok();
    }
    case protocol::MessageType::kLoaded: {
      ASSIGN_OR_RETURN(auto loaded, rpc::from_bytes<protocol::Loaded>(m.payload));
      feed(recovery::Loaded{speaker(m), {loaded.committed, std::move(loaded.tensors)}});
      return base::Status::ok();
    }
    case protocol::MessageType::kStopped: {
      ASSIGN_OR_RETURN(const auto stopped, rpc::from_bytes<protocol::Stopped>(m.payload));
      feed(recovery::Stopped{
          speaker(m), base::Status(static_cast<base::StatusCode>(stopped.code), stopped.text)});
      return base::Status::ok();
    }
    case protocol::MessageType::kStepReport: {
      ASSIGN_OR_RETURN(const auto report, rpc::from_bytes<protocol::StepReport>(m.payload));
      on_step(speaker(m), report);
      return base::Status::ok();
    }
    case protocol::MessageType::kEvaluationReport: {
      ASSIGN_OR_RETURN(const auto report, rpc::from_bytes<protocol::EvaluationReport>(m.payload));
      if (m.epoch == machine_.epoch()) observer_.on_evaluation(report);
      return base::Status::ok();
    }
    case protocol::MessageType::kFinished: {
      ASSIGN_OR_RETURN(const auto finished, rpc::from_bytes<protocol::Finished>(m.payload));
      const auto rank = machine_.rank_of(m.worker, m.incarnation);
      if (m.epoch == machine_.epoch() && rank.has_value()) {
        if (are_reports_missing(finished.step)) return base::Status::ok();
        observer_.on_finished(*rank, finished);
      }
      feed(recovery::MemberFinished{speaker(m), finished.step, finished.state_digest,
                                    finished.params_digest});
      return base::Status::ok();
    }
    default:
      return base::data_loss("no worker sends this");
  }
}

void Coordinator::ask_reports() {
  const base::Nanos now = clock_.now();
  if (now < asked_at_ + kAskEvery || !machine_.plan().has_value()) return;
  asked_at_ = now;
  if (end_waits_) ++end_asked_;
  carry_out(recovery::Send{machine_.plan()->members, machine_.epoch(), recovery::OrderTellAgain{}});
}

// The end is not taken before every step was heard of: who is asked for its reports tells its end
// again after them. What nobody can tell any more is done without.
bool Coordinator::are_reports_missing(base::Step step) {
  if (observer_.steps_known() >= step) return false;
  if (end_asked_ >= kEndAsksMax) {
    LOG_ERROR("coordinator", "reports are lost", KV("known", observer_.steps_known()));
    return false;
  }
  end_waits_ = true;  // tick() asks, too
  ask_reports();
  return true;
}

// Reports of an epoch that is over are still true: its steps were committed.
void Coordinator::on_step(const recovery::Speaker& from, const protocol::StepReport& report) {
  switch (observer_.on_step(report)) {
    case StepNews::kNew:
    case StepNews::kRepeated:
      break;
    case StepNews::kDiffers:
      end(base::data_loss("step " + std::to_string(report.step.value()) +
                          " was run again and gave other bits"));
      return;
    case StepNews::kGap:
      ask_reports();
      break;
  }
  if (machine_.plan().has_value() && from.epoch == machine_.epoch() &&
      first_step_of_ < from.epoch && report.epoch == from.epoch) {
    first_step_of_ = from.epoch;
    observer_.on_event(
        base::Event("epoch.step").with("epoch", from.epoch).with("step", report.step));
  }
  feed(recovery::StepSeen{from, report.step, report.epoch});
}

}  // namespace perdure::runtime::coordinator
