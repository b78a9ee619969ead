#include "chaos/cluster/fault_script.h"

#include <algorithm>
#include <array>

namespace perdure::chaos::cluster {
namespace {

constexpr base::Nanos kFaultsUntil = std::chrono::seconds(12);

constexpr std::array<std::string_view, 20> kPlaces = {
    "step.begin",          "step.reduce",          "step.vote",           "step.voted",
    "step.commit",         "coordinator.fence",    "coordinator.collect", "coordinator.decide",
    "coordinator.prepare", "coordinator.transfer", "coordinator.gate",    "coordinator.go",
    "coordinator.resolve", "coordinator.hold",     "journal.before",      "journal.after",
    "epoch.fence",         "epoch.transfer",       "epoch.serve",         "epoch.gate"};

base::Nanos milliseconds(uint64_t ms) { return base::Nanos(static_cast<int64_t>(ms) * 1'000'000); }

}  // namespace

std::string_view to_string(StrikeKind kind) {
  switch (kind) {
    case StrikeKind::kKillWorker:
      return "kill worker";
    case StrikeKind::kKillNode:
      return "kill node";
    case StrikeKind::kPowerOff:
      return "power off node";
    case StrikeKind::kKillCoordinator:
      return "kill coordinator";
    case StrikeKind::kStopWorker:
      return "stop worker";
    case StrikeKind::kStopNode:
      return "stop node";
    case StrikeKind::kStopCoordinator:
      return "stop coordinator";
    case StrikeKind::kCutOff:
      return "cut off from node";
    case StrikeKind::kReplaceNode:
      return "replace node";
  }
  return "unknown";
}

std::string Strike::to_string() const {
  std::string text(cluster::to_string(kind));
  if (kind != StrikeKind::kKillCoordinator && kind != StrikeKind::kStopCoordinator)
    text += " " + std::to_string(target);
  if (kind == StrikeKind::kCutOff) text += " (" + std::to_string(count) + " nodes)";
  text += place.empty() ? " at " + std::to_string(base::to_ms(when)) + " ms"
                        : " at passing " + std::to_string(nth) + " of " + place;
  if (duration.count() > 0) text += " for " + std::to_string(base::to_ms(duration)) + " ms";
  return text;
}

FaultScript::FaultScript(SimCluster& cluster, uint32_t strikes_max)
    : cluster_(cluster), strikes_max_(strikes_max), random_(cluster.options().seed, 17) {
  draw();
  used_.resize(strikes_.size(), false);
}

void FaultScript::draw() {
  const uint64_t count = random_.uniform_int(strikes_max_ + 1);
  const ClusterOptions& o = cluster_.options();
  for (uint64_t i = 0; i < count; ++i) {
    Strike s;
    s.kind = static_cast<StrikeKind>(random_.uniform_int(9));
    const bool of_worker = s.kind == StrikeKind::kKillWorker || s.kind == StrikeKind::kStopWorker;
    s.target = static_cast<uint32_t>(
        random_.uniform_int(of_worker ? o.nodes * o.workers_per_node : o.nodes));
    s.count = 1 + static_cast<uint32_t>(random_.uniform_int(std::max(1u, o.nodes / 2)));
    if (random_.bernoulli(0.6)) {
      s.place = kPlaces[random_.uniform_int(kPlaces.size())];
      const bool often = s.place.starts_with("step.") || s.place.starts_with("epoch.");
      const uint64_t many = often ? uint64_t{o.pipelines} * o.stages * o.steps / 2 : 4;
      s.nth = 1 + static_cast<uint32_t>(random_.uniform_int(std::max<uint64_t>(many, 1)));
    } else {
      s.when = milliseconds(random_.uniform_int(3000));
    }
    switch (s.kind) {
      case StrikeKind::kKillWorker:
        break;
      case StrikeKind::kKillNode:
      case StrikeKind::kPowerOff:
        if (random_.bernoulli(0.7)) s.duration = milliseconds(50 + random_.uniform_int(4000));
        break;
      default:
        // Some shorter than a lease, some much longer.
        s.duration = milliseconds(20 + random_.uniform_int(random_.bernoulli(0.5) ? 800 : 6000));
    }
    strikes_.push_back(std::move(s));
  }
}

void FaultScript::arm() {
  cluster_.on_point([this](std::string_view place) { passed(place); });
  for (const Strike& s : strikes_) {
    if (s.place.empty()) cluster_.world().call_at(s.when, [this, &s] { strike(s); });
  }
  cluster_.world().call_at(kFaultsUntil, [this] { end_all(); });
}

void FaultScript::passed(std::string_view place) {
  if (over_) return;
  auto found = passings_.find(place);
  if (found == passings_.end()) found = passings_.emplace(std::string(place), 0).first;
  ++found->second;
  for (size_t i = 0; i < strikes_.size(); ++i) {
    if (used_[i] || strikes_[i].place != place || strikes_[i].nth != found->second) continue;
    used_[i] = true;
    strike(strikes_[i]);
  }
}

std::vector<base::NodeId> FaultScript::cut_nodes(const Strike& s) const {
  std::vector<base::NodeId> nodes;
  for (uint32_t i = 0; i < s.count; ++i)
    nodes.push_back(base::NodeId((s.target + i) % cluster_.options().nodes));
  return nodes;
}

bool FaultScript::is_survivable(const Strike& s) const {
  std::set<base::WorkerId> lost;
  std::set<base::NodeId> lost_nodes;
  const uint32_t per_node = cluster_.options().workers_per_node;
  const auto lose_node = [&](base::NodeId node) {
    lost_nodes.insert(node);
    for (uint32_t i = 0; i < per_node; ++i)
      lost.insert(base::WorkerId(node.value() * per_node + i));
  };
  switch (s.kind) {
    case StrikeKind::kKillCoordinator:
    case StrikeKind::kStopCoordinator:
      return true;
    case StrikeKind::kStopWorker:  // nobody else on its node may be there to read what it keeps
      lost_nodes.insert(cluster_.node_of(base::WorkerId(s.target)));
      [[fallthrough]];
    case StrikeKind::kKillWorker:
      lost.insert(base::WorkerId(s.target));
      break;
    case StrikeKind::kKillNode:
    case StrikeKind::kPowerOff:
    case StrikeKind::kStopNode:
    case StrikeKind::kReplaceNode:
      lose_node(base::NodeId(s.target));
      break;
    case StrikeKind::kCutOff:
      for (const base::NodeId node : cut_nodes(s)) lose_node(node);
      break;
  }
  // Old and new may both live on until a coordinator sees them: what is kept now is not all that
  // will be lost.
  if (s.kind == StrikeKind::kReplaceNode && cluster_.options().snapshots)
    return cluster_.is_running() && cluster_.is_held_without(lost);
  return cluster_.survives_without(lost, lost_nodes);
}

void FaultScript::strike(const Strike& s) {
  if (over_ || cluster_.outcome().has_value()) return;
  if (!is_survivable(s)) {
    ++skipped_;
    return;
  }
  ++done_;
  SimCluster& c = cluster_;
  const base::Nanos end = c.world().now() + s.duration;
  const base::NodeId node(s.target);
  const base::WorkerId worker(s.target);
  c.ledger().on_event(
      base::Event("STRIKE").with("what", s.to_string()).with("t_ms", base::to_ms(c.world().now())));
  switch (s.kind) {
    case StrikeKind::kKillWorker:
      c.kill_worker(worker);
      break;
    case StrikeKind::kKillNode:
    case StrikeKind::kPowerOff:
      c.kill_node(node, s.kind == StrikeKind::kPowerOff ? Crash::kPower : Crash::kProcess);
      if (s.duration.count() > 0) c.world().call_at(end, [&c, node] { c.restart_node(node); });
      break;
    case StrikeKind::kKillCoordinator:
      c.kill_coordinator();
      c.world().call_at(end, [&c] { c.restart_coordinator(); });
      break;
    case StrikeKind::kStopWorker:
      c.pause_worker(worker);
      c.world().call_at(end, [&c, worker] { c.resume_worker(worker); });
      break;
    case StrikeKind::kStopNode:
      c.pause_node(node);
      c.world().call_at(end, [&c, node] { c.resume_node(node); });
      break;
    case StrikeKind::kStopCoordinator:
      c.pause_coordinator();
      c.world().call_at(end, [&c] { c.resume_coordinator(); });
      break;
    case StrikeKind::kReplaceNode:
      c.pause_node(node);
      c.world().call_at(c.world().now() + s.duration / 2, [&c, node] { c.replace_node(node); });
      c.world().call_at(end, [&c] { c.resume_replaced(); });
      break;
    case StrikeKind::kCutOff:
      c.cut_off(cut_nodes(s));
      c.world().call_at(end, [&c] { c.heal(); });
      break;
  }
}

// From here on nothing fails, and the job must end.
void FaultScript::end_all() {
  over_ = true;
  cluster_.heal();
  cluster_.resume_replaced();
  cluster_.resume_coordinator();
  cluster_.restart_coordinator();
  for (uint32_t n = 0; n < cluster_.options().nodes; ++n) {
    cluster_.resume_node(base::NodeId(n));
    cluster_.restart_node(base::NodeId(n));
  }
}

const std::vector<std::string>& required_goals() {
  static const std::vector<std::string> goals = [] {
    std::vector<std::string> list;
    for (const char* phase :
         {"collecting", "resolving", "preparing", "loading", "active", "holding"}) {
      list.push_back("a member is lost while " + std::string(phase));
      list.push_back("the coordinator is lost while " + std::string(phase));
    }
    list.push_back("split network");
    list.push_back("a member comes back with an old incarnation");
    return list;
  }();
  return goals;
}

SeedResult run_seed(const SeedOptions& options) {
  SimCluster cluster(options.cluster);
  FaultScript script(cluster, options.strikes_max);
  script.arm();
  cluster.start();
  const bool ended = cluster.run(options.limit);
  SeedResult result;
  result.goals = cluster.goals();
  result.events = cluster.world().event_count();
  result.virtual_time = cluster.world().now();
  result.strikes = script.done();
  result.skipped = script.skipped();
  result.recoveries = cluster.ledger().plans().empty() ? 0 : cluster.ledger().plans().size() - 1;
  if (!cluster.violation().empty()) {
    result.problem = cluster.violation();
  } else if (!ended) {
    result.problem = "no end: step " + std::to_string(cluster.ledger().steps_known().value()) +
                     " of " + std::to_string(options.cluster.steps) + " after " +
                     std::to_string(base::to_seconds(options.limit)) + " s";
  } else if (!cluster.outcome()->is_ok()) {
    result.problem = "the job ended: " + cluster.outcome()->to_string();
  } else {
    result.problem =
        cluster.ledger().problem(options.cluster.steps, cluster.job().samples_per_step);
    if (result.problem.empty() &&
        cluster.ledger().final_digest() != cluster.job().state_digest_after(options.cluster.steps))
      result.problem = "the final state is not that of an undisturbed run";
  }
  if (options.tell || !result.problem.empty()) {
    for (const Strike& s : script.strikes()) result.story.push_back("planned: " + s.to_string());
    for (const std::string& line : cluster.ledger().story()) result.story.push_back(line);
  }
  return result;
}

}  // namespace perdure::chaos::cluster
