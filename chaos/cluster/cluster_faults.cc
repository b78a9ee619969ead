// What can strike a simulated cluster.

#include <algorithm>

#include "chaos/cluster/cluster_processes.h"

namespace perdure::chaos::cluster {

// From inside a host's turn a process ends when the turn does.
void SimCluster::end_process(SimHost& host, Crash crash) {
  world_.call_at(world_.now(), [&host, crash, born = host.incarnation()] {
    if (host.is_alive() && host.incarnation() == born) host.kill(crash);
  });
}

void SimCluster::worker_exited(WorkerSlot& place, const std::string& how) {
  end_process(*place.host, Crash::kProcess);
  if (place.handle != nullptr) place.handle->exited(how);
}

void SimCluster::kill_worker(base::WorkerId worker) {
  if (slot(worker).host->is_alive()) {
    note("a worker is lost while " + phase());
    note("a member is lost while " + phase());
  }
  kill(slot(worker));
}

void SimCluster::kill(WorkerSlot& place) {
  if (place.host->is_alive()) place.host->die(Crash::kProcess);
  place.engine = nullptr;  // counts for nothing from now on, though its turn may not be over
  place.paused = false;
  if (place.handle != nullptr) place.handle->exited("signal 9 (Killed)");
}

void SimCluster::kill_node(base::NodeId node, Crash crash) {
  SimHost& agent = *agents_.at(node);
  if (!agent.is_alive()) return;
  note("a node is lost while " + phase());
  note("a member is lost while " + phase());
  agent.die(crash);
  for (const base::WorkerId worker : workers_of(node)) {
    WorkerSlot& place = slot(worker);
    place.memory->clear();
    if (place.host->is_alive()) place.host->die(crash);
    place.engine = nullptr;
    place.paused = false;
  }
  paused_.erase(node);
}

void SimCluster::restart_node(base::NodeId node) {
  SimHost& agent = *agents_.at(node);
  if (!agent.is_alive()) agent.restart();
}

void SimCluster::kill_coordinator() {
  if (!coordinator_host_->is_alive()) return;
  note("the coordinator is lost while " + phase());
  coordinator_host_->die(Crash::kProcess);
}

void SimCluster::restart_coordinator() {
  if (!coordinator_host_->is_alive() && !outcome_.has_value()) coordinator_host_->restart();
}

void SimCluster::pause_worker(base::WorkerId worker) {
  WorkerSlot& place = slot(worker);
  if (!place.host->is_alive()) return;
  note("a worker stops while " + phase());
  place.paused = true;
  place.host->pause();
}

void SimCluster::resume_worker(base::WorkerId worker) {
  WorkerSlot& place = slot(worker);
  place.paused = false;
  place.host->resume();
}

void SimCluster::pause_node(base::NodeId node) {
  if (!agents_.at(node)->is_alive()) return;
  note("a node stops while " + phase());
  paused_.insert(node);
  agents_.at(node)->pause();
  for (const base::WorkerId worker : workers_of(node)) slot(worker).host->pause();
}

void SimCluster::resume_node(base::NodeId node) {
  paused_.erase(node);
  agents_.at(node)->resume();
  for (const base::WorkerId worker : workers_of(node)) slot(worker).host->resume();
}

void SimCluster::replace_node(base::NodeId node) {
  SimHost& old = *agents_.at(node);
  if (!old.is_alive() || !paused_.contains(node)) return;
  paused_.erase(node);
  const std::string name = "n" + std::to_string(node.value()) + "r";
  Replaced replaced{.agent = &old};
  replaced.slots = add_node(node, name + std::to_string(replaced_.size()));
  replaced_.push_back(std::move(replaced));
  boot_node(node);
}

void SimCluster::resume_replaced() {
  for (const Replaced& replaced : replaced_) {
    replaced.agent->resume();
    for (const auto& [worker, place] : replaced.slots) place->host->resume();
  }
}

void SimCluster::agent_ended(const SimHost& host, const base::Status& status) {
  for (const Replaced& replaced : replaced_) {
    if (replaced.agent != &host || status.code() != base::StatusCode::kAborted) continue;
    note("a member comes back with an old incarnation");
    for (const auto& [worker, place] : replaced.slots) {
      if (place->host->is_alive() && place->engine != nullptr)
        violate("worker " + std::to_string(worker.value()) +
                " outlives its node, which is refused");
    }
  }
}

void SimCluster::pause_coordinator() {
  note("the coordinator stops while " + phase());
  coordinator_host_->pause();
}

void SimCluster::resume_coordinator() { coordinator_host_->resume(); }

void SimCluster::cut_off(const std::vector<base::NodeId>& nodes) {
  note("split network while " + phase());
  note("split network");
  std::vector<std::string> names;
  for (const base::NodeId node : nodes) {
    cut_.insert(node);
    names.push_back(agents_.at(node)->name());
    plane_.set_side(agents_.at(node)->index(), 1);
    for (const base::WorkerId worker : workers_of(node)) {
      names.push_back(slot(worker).host->name());
      plane_.set_side(slot(worker).host->index(), 1);
    }
  }
  world_.network().partition(names);
}

void SimCluster::heal() {
  cut_.clear();
  world_.network().heal_all();
  plane_.heal_all();
}

bool SimCluster::is_node_up(base::NodeId node) const { return agents_.at(node)->is_alive(); }

bool SimCluster::is_worker_up(base::WorkerId worker) const {
  return workers_.at(worker)->host->is_alive();
}

bool SimCluster::is_coordinator_up() const { return coordinator_host_->is_alive(); }

std::vector<const FakeEngine*> SimCluster::reachable_engines(
    const std::set<base::WorkerId>& lost) const {
  std::vector<const FakeEngine*> engines;
  for (const auto& [worker, place] : workers_) {
    const bool counts = place->engine != nullptr && place->host->is_alive() && !place->paused &&
                        !lost.contains(worker) && !cut_.contains(node_of(worker)) &&
                        !paused_.contains(node_of(worker)) && place->engine->has_state();
    if (counts) engines.push_back(place->engine);
  }
  return engines;
}

// What is live together with what nodes keep in memory: the newest step, or the one before it.
bool SimCluster::is_kept_without(const std::set<base::WorkerId>& lost,
                                 const std::set<base::NodeId>& lost_nodes) const {
  uint64_t newest = newest_commit_.value();
  for (const auto& [worker, place] : workers_) {
    const FakeEngine* engine = place->engine;  // whose step may be committed by others, right now
    if (engine != nullptr && engine->pending().epoch.value() != 0)
      newest = std::max(newest, engine->committed().step.value() + 1);
  }
  if (newest <= 1) return true;                       // step 0 can be made from the seed
  std::map<uint64_t, std::set<base::TensorId>> held;  // by step
  for (const FakeEngine* engine : reachable_engines(lost)) {
    for (const auto& [tensor, digest] : engine->tensors()) {
      if (!engine->lets_go(tensor)) held[engine->committed().step.value()].insert(tensor);
    }
  }
  for (const auto& [worker, place] : workers_) {
    const base::NodeId node = node_of(worker);
    if (!agents_.at(node)->is_alive() || place->paused || paused_.contains(node) ||
        cut_.contains(node) || lost_nodes.contains(node))
      continue;
    for (const recovery::StateOffer& offer : place->memory->offers()) {
      for (const recovery::TensorDigest& t : offer.tensors)
        held[offer.committed.step.value()].insert(t.tensor);
    }
  }
  return std::any_of(held.begin(), held.end(), [this, newest](const auto& entry) {
    return entry.first + 1 >= newest && entry.second.size() == job_.model.tensors.size();
  });
}

bool SimCluster::survives_without(const std::set<base::WorkerId>& lost,
                                  const std::set<base::NodeId>& lost_nodes) const {
  return (options_.snapshots && newest_active_.value() > 0 && is_kept_without(lost, lost_nodes)) ||
         is_held_without(lost);
}

bool SimCluster::is_held_without(const std::set<base::WorkerId>& lost) const {
  const uint64_t newest = newest_commit_.value();
  if (newest_active_.value() == 0) return true;  // step 0 can be made from the seed
  // Every tensor at the newest step that can still be reached by those who can be heard: they are
  // there, or their vote is pending and somebody who is there can give it.
  const std::vector<const FakeEngine*> engines = reachable_engines(lost);
  uint64_t best = 0;
  for (const FakeEngine* engine : engines) best = std::max(best, engine->committed().step.value());
  if (best + 1 < newest) return false;
  std::vector<bool> held(job_.model.tensors.size(), false);
  for (const FakeEngine* engine : engines) {
    const bool there = engine->committed().step.value() == best;
    const bool can_follow =
        engine->committed().step.value() + 1 == best &&
        std::any_of(engines.begin(), engines.end(), [&](const FakeEngine* other) {
          return other->committed().step.value() == best && engine->pending().epoch.value() != 0 &&
                 other->vote_id() == engine->pending();
        });
    if (!there && !can_follow) continue;
    for (const auto& [tensor, digest] : engine->tensors()) {
      if (!engine->lets_go(tensor)) held[tensor.value()] = true;
    }
  }
  return std::all_of(held.begin(), held.end(), [](bool h) { return h; });
}

}  // namespace perdure::chaos::cluster
