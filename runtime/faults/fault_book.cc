#include "runtime/faults/fault_book.h"

#include <algorithm>
#include <utility>

namespace perdure::runtime::faults {
namespace {

FaultAct::Kind kind_of(FaultDeed deed) {
  switch (deed) {
    case FaultDeed::kStop:
      return FaultAct::Kind::kStop;
    case FaultDeed::kExit:
      return FaultAct::Kind::kExit;
    case FaultDeed::kDrop:
      return FaultAct::Kind::kDrop;
    default:
      return FaultAct::Kind::kKill;
  }
}

}  // namespace

std::string ProcessInfo::to_string() const {
  const std::string tail = " (pid " + std::to_string(pid) + ")";
  switch (role) {
    case ProcessRole::kCoordinator:
      return "coordinator" + tail;
    case ProcessRole::kAgent:
      return "node " + std::to_string(number) + tail;
    case ProcessRole::kWorker:
      return "worker " + std::to_string(number) + tail;
  }
  return "unknown";
}

FaultBook::FaultBook(std::vector<FaultSpec> specs)
    : specs_(std::move(specs)), used_(specs_.size(), false) {}

void FaultBook::add(const ProcessInfo& process) {
  const uint32_t number = process.role == ProcessRole::kCoordinator ? 0 : process.number;
  processes_[{process.role, number}] = process;
  if (process.role != ProcessRole::kWorker) return;
  const ProcessInfo* agent = agent_of(process.group);
  if (agent != nullptr) nodes_of_workers_[process.number] = agent->number;
}

void FaultBook::remove(int pid) {
  std::erase_if(processes_, [pid](const auto& entry) { return entry.second.pid == pid; });
}

const ProcessInfo* FaultBook::find(ProcessRole role, uint32_t number) const {
  const auto at = processes_.find({role, number});
  return at == processes_.end() ? nullptr : &at->second;
}

const ProcessInfo* FaultBook::agent_of(int group) const {
  for (const auto& [key, process] : processes_) {
    if (process.role == ProcessRole::kAgent && process.group == group) return &process;
  }
  return nullptr;
}

bool FaultBook::concerns(const FaultSpec& spec, const ProcessInfo& who) const {
  if (spec.moment == FaultMoment::kEpoch && spec.target.kind != TargetKind::kSource) {
    return who.role == ProcessRole::kCoordinator;
  }
  if (who.role != ProcessRole::kWorker) return false;
  // Who is to be started cannot be there.
  if (spec.deed == FaultDeed::kStart) return true;
  if (spec.target.kind == TargetKind::kWorker) return who.number == spec.target.number;
  if (spec.target.kind == TargetKind::kNode) {
    const ProcessInfo* agent = agent_of(who.group);
    return agent != nullptr && agent->number == spec.target.number;
  }
  return true;
}

std::vector<FaultAct> FaultBook::aim(const FaultTarget& target, const ProcessInfo* who) const {
  std::vector<FaultAct> acts;
  const auto at_process = [&acts](const ProcessInfo* process) {
    if (process != nullptr) acts.push_back({.pid = process->pid, .group = process->group});
  };
  const auto at_node = [&acts](const ProcessInfo* agent) {
    if (agent != nullptr) acts.push_back({.pid = -agent->group, .group = agent->group});
  };
  switch (target.kind) {
    case TargetKind::kWorker:
      at_process(find(ProcessRole::kWorker, target.number));
      break;
    case TargetKind::kNode:
      at_node(find(ProcessRole::kAgent, target.number));
      break;
    case TargetKind::kCoordinator:
      at_process(find(ProcessRole::kCoordinator, 0));
      break;
    case TargetKind::kSource:
      at_process(who);
      break;
    case TargetKind::kJob:
      // The coordinator first: it shall not see its nodes go.
      at_process(find(ProcessRole::kCoordinator, 0));
      for (const auto& [key, process] : processes_) {
        if (process.role == ProcessRole::kAgent) at_node(&process);
      }
      break;
  }
  return acts;
}

bool FaultBook::start(const FaultSpec& spec, Strike& strike) const {
  if (spec.target.kind == TargetKind::kNode) {
    strike.acts = {{.kind = FaultAct::Kind::kStartNode, .node = spec.target.number}};
    return true;
  }
  const auto node = nodes_of_workers_.find(spec.target.number);
  if (node == nodes_of_workers_.end()) return false;
  const ProcessInfo* agent = find(ProcessRole::kAgent, node->second);
  if (agent == nullptr) return false;
  strike.acts = {{.kind = FaultAct::Kind::kStartWorkers, .pid = agent->pid, .group = agent->group}};
  return true;
}

bool FaultBook::strike(const FaultSpec& spec, const ProcessInfo* who, Strike& strike) const {
  strike.whom = spec.target.to_string();
  if (spec.deed == FaultDeed::kStart) return start(spec, strike);
  strike.acts = aim(spec.target, who);
  if (strike.acts.empty()) return false;
  const bool is_self = who != nullptr && strike.acts.size() == 1 && strike.acts[0].pid == who->pid;
  if (is_self) strike.whom = who->to_string();
  if (is_self && (spec.deed == FaultDeed::kExit || spec.deed == FaultDeed::kDrop ||
                  spec.deed == FaultDeed::kSlow)) {
    strike.acts.clear();
    strike.factor = spec.factor;
    strike.answer = spec.deed == FaultDeed::kExit   ? FaultAnswer::kExit
                    : spec.deed == FaultDeed::kDrop ? FaultAnswer::kDrop
                                                    : FaultAnswer::kSlow;
    return true;
  }
  if (spec.deed == FaultDeed::kSlow) return false;
  for (FaultAct& act : strike.acts) {
    act.kind = kind_of(spec.deed);
    act.resume_after = spec.stop_time;
  }
  return true;
}

std::vector<Strike> FaultBook::on_hit(const FaultHit& hit) {
  add(hit.who);
  std::vector<Strike> strikes;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (used_[i] || !specs_[i].is_reached(hit.point, hit.step, hit.epoch)) continue;
    Strike next{.index = i, .whom = {}, .acts = {}};
    if (!concerns(specs_[i], hit.who) || !strike(specs_[i], &hit.who, next)) continue;
    used_[i] = true;
    strikes.push_back(std::move(next));
  }
  return strikes;
}

std::vector<Strike> FaultBook::on_time(base::Nanos since_start) {
  std::vector<Strike> strikes;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (used_[i] || specs_[i].moment != FaultMoment::kTime || specs_[i].time > since_start) {
      continue;
    }
    // Its time does not come again, whoever is there.
    used_[i] = true;
    Strike next{.index = i, .whom = {}, .acts = {}};
    if (!strike(specs_[i], nullptr, next)) next.whom += " (not there)";
    strikes.push_back(std::move(next));
  }
  return strikes;
}

base::Nanos FaultBook::next_time() const {
  base::Nanos next = base::kNoDeadline;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!used_[i] && specs_[i].moment == FaultMoment::kTime) next = std::min(next, specs_[i].time);
  }
  return next;
}

std::vector<std::string> FaultBook::unused() const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!used_[i]) texts.push_back(specs_[i].text);
  }
  return texts;
}

bool FaultBook::has_unused_start() const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!used_[i] && specs_[i].deed == FaultDeed::kStart &&
        specs_[i].moment == FaultMoment::kTime) {
      return true;
    }
  }
  return false;
}

}  // namespace perdure::runtime::faults
