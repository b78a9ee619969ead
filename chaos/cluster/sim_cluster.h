#pragma once
// SimCluster: a whole job in the simulated world: the real Coordinator, Agents and Workers, fake
// engines, one seed. What a host is here: the coordinator, each agent, each worker process.
//
//   world ── host "c": Coordinator · journal and ledger outlive it
//         ── host "n3": Agent ── starts ──► hosts "n3w0", "n3w1": Worker + FakeEngine
//
// Owns the world and everything in it. One thread.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fault_point.h"
#include "chaos/cluster/data_plane.h"
#include "chaos/cluster/fake_engine.h"
#include "chaos/cluster/ledger.h"
#include "chaos/sim_world.h"
#include "runtime/agent/worker_starter.h"
#include "runtime/coordinator/coordinator.h"

namespace perdure::chaos::cluster {

struct ClusterOptions {
  uint64_t seed = 1;
  uint32_t nodes = 4;
  uint32_t workers_per_node = 1;
  uint32_t pipelines = 2;
  uint32_t stages = 2;
  uint32_t micro_batches = 8;
  uint64_t steps = 20;
  int64_t layers = 6;  // blocks of the model
  base::Nanos compute_mean = std::chrono::milliseconds(50);
  bool snapshots = false;          // each node keeps the last two states of its workers
  uint32_t recoveries_max = 1000;  // the loop breaker has tests of its own
  runtime::membership::LeaseOptions lease;
  std::function<base::Nanos()> meter;  // of real time, for what the coordinator's code takes
  LinkOptions link;
  DataPlaneOptions data;
};

class SimCluster : private EngineObserver {
 public:
  explicit SimCluster(const ClusterOptions& options);
  ~SimCluster() override;

  void start();
  // Until the job has ended and its coordinator has left; false when it has not by `limit`.
  bool run(base::Nanos limit);
  const std::optional<base::Status>& outcome() const { return outcome_; }

  SimWorld& world() { return world_; }
  const ClusterOptions& options() const { return options_; }
  Ledger& ledger() { return ledger_; }
  const FakeJob& job() const { return job_; }
  // The coordinator that lives, or null.
  const runtime::coordinator::Coordinator* coordinator() const { return coordinator_; }
  // First thing that must never be; empty while all is well.
  const std::string& violation() const { return violation_; }
  std::set<std::string>& goals() { return goals_; }

  // -- faults; between the hosts' turns, or at a named place inside one (then the host that is
  // struck itself ends when it next waits)
  void kill_worker(base::WorkerId worker);
  void kill_node(base::NodeId node, Crash crash);
  void restart_node(base::NodeId node);
  void kill_coordinator();
  void restart_coordinator();
  void pause_worker(base::WorkerId worker);
  void resume_worker(base::WorkerId worker);
  void pause_node(base::NodeId node);
  void resume_node(base::NodeId node);
  // Starts the node, which is stopped, anew on another host, as when it is taken for dead. The old
  // processes are still there and may go on; they must be refused then, and end.
  void replace_node(base::NodeId node);
  void resume_replaced();
  void pause_coordinator();
  void resume_coordinator();
  // Cuts these nodes off from all others and from the coordinator.
  void cut_off(const std::vector<base::NodeId>& nodes);
  void heal();
  bool is_node_up(base::NodeId node) const;
  bool is_worker_up(base::WorkerId worker) const;
  bool is_coordinator_up() const;
  // An epoch has been active, and the coordinator is there.
  bool is_running() const { return newest_active_.value() > 0 && is_coordinator_up(); }
  base::NodeId node_of(base::WorkerId worker) const {
    return base::NodeId(worker.value() / options_.workers_per_node);
  }
  base::Nanos coordinator_work() const { return coordinator_host_->metered(); }
  NodeMemory& memory_of(base::WorkerId worker) { return *slot(worker).memory; }
  // Would the job still have all of its state, at most one step back, without these workers'
  // processes, and without what these nodes keep in memory?
  bool survives_without(const std::set<base::WorkerId>& lost,
                        const std::set<base::NodeId>& lost_nodes = {}) const;
  // The same by what is live alone.
  bool is_held_without(const std::set<base::WorkerId>& lost) const;
  // Told of every named place that is passed, after the invariants.
  void on_point(std::function<void(std::string_view)> listener) { on_point_ = std::move(listener); }

 private:
  class CoordinatorProcess;
  class AgentProcess;
  class WorkerHost;
  class Starter;
  class Handle;
  class Places;

  struct WorkerSlot {
    SimHost* host = nullptr;
    NodeMemory* memory = nullptr;  // of its node
    std::optional<runtime::agent::WorkerStart> start;
    FakeEngine* engine = nullptr;
    Handle* handle = nullptr;  // of its agent, while that lives
    bool paused = false;
  };
  using Slots = std::map<base::WorkerId, WorkerSlot*>;
  // The processes of a node that has been replaced.
  struct Replaced {
    SimHost* agent = nullptr;
    Slots slots;
  };

  void on_commit(const FakeEngine& engine, base::Step step, recovery::VoteId vote) override;
  void on_go(const FakeEngine& engine) override;
  void at_point(std::string_view name);
  void violate(const std::string& what);
  void check_active(const recovery::EpochPlan& plan);
  void end_process(SimHost& host, Crash crash);
  void worker_exited(WorkerSlot& place, const std::string& how);
  WorkerSlot& slot(base::WorkerId worker) { return *workers_.at(worker); }
  void kill(WorkerSlot& place);
  Slots add_node(base::NodeId node, const std::string& name);
  void boot_node(base::NodeId node);
  void agent_ended(const SimHost& host, const base::Status& status);
  std::vector<base::WorkerId> workers_of(base::NodeId node) const;
  void note(std::string goal) { goals_.insert(std::move(goal)); }
  std::string phase() const;
  bool is_kept_without(const std::set<base::WorkerId>& lost,
                       const std::set<base::NodeId>& lost_nodes) const;
  std::vector<const FakeEngine*> reachable_engines(const std::set<base::WorkerId>& lost) const;
  uint64_t expected(base::TensorId tensor, base::Step step);
  runtime::coordinator::CoordinatorOptions coordinator_options() const;

  const ClusterOptions options_;
  FakeJob job_;
  std::vector<runtime::coordinator::JournalRecord> journal_;
  Ledger ledger_;
  std::string violation_;
  std::set<std::string> goals_;
  std::optional<base::Status> outcome_;
  std::function<void(std::string_view)> on_point_;
  std::vector<std::unique_ptr<NodeMemory>>
      memories_;  // by node as it was added; of replaced ones, too
  std::vector<std::unique_ptr<WorkerSlot>> slots_;  // also of replaced nodes
  Slots workers_;                                   // the newest of each
  std::vector<Replaced> replaced_;
  std::map<base::NodeId, SimHost*> agents_;
  std::map<base::WorkerId, std::pair<base::Epoch, uint32_t>> late_commits_;
  std::set<base::NodeId> cut_;
  std::set<base::NodeId> paused_;
  base::Epoch newest_active_;
  base::Step newest_commit_;
  runtime::coordinator::Coordinator* coordinator_ = nullptr;
  base::Address coordinator_address_;
  SimHost* coordinator_host_ = nullptr;
  bool ending_ = false;
  std::unique_ptr<Places> places_;
  DataPlane plane_;  // outlives the world, whose hosts leave it when they die
  SimWorld world_;
};

}  // namespace perdure::chaos::cluster
