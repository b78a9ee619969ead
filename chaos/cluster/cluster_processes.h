#pragma once
// The programs of a simulated cluster's hosts. Internal to chaos/cluster.

#include <memory>
#include <optional>
#include <string>

#include "chaos/cluster/sim_cluster.h"
#include "runtime/agent/agent.h"
#include "runtime/coordinator/memory_journal.h"
#include "runtime/worker/worker.h"

namespace perdure::chaos::cluster {

inline constexpr uint16_t kCoordinatorPort = 7;

// Named places, from whatever host reaches them.
class SimCluster::Places final : public base::FaultHandler {
 public:
  explicit Places(SimCluster& cluster) : cluster_(cluster), installed_(*this) {}
  base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
    cluster_.at_point(name);
    return base::Status::ok();
  }

 private:
  SimCluster& cluster_;
  base::ScopedFaultHandler installed_;
};

class SimCluster::CoordinatorProcess final : public SimProcess {
 public:
  CoordinatorProcess(SimCluster& cluster, SimHost& host);
  ~CoordinatorProcess() override;

 private:
  base::Task<void> live();

  SimCluster& cluster_;
  SimHost& host_;
  runtime::coordinator::MemoryJournal journal_;
  std::unique_ptr<runtime::coordinator::Coordinator> coordinator_;
  base::Gate gate_;
};

// What an agent holds of a worker's process. When the agent dies, so does the worker.
class SimCluster::Handle final : public runtime::agent::WorkerProcess {
 public:
  Handle(SimCluster& cluster, WorkerSlot& slot, const base::Executor& executor, SimHost& agent,
         base::UniqueFunction<void(std::string)> on_exit);
  ~Handle() override;
  uint64_t pid() const override { return slot_.host->index(); }
  bool is_running() const override { return running_; }
  void kill() override;
  void exited(const std::string& how);  // by the cluster

 private:
  SimCluster& cluster_;
  WorkerSlot& slot_;
  const base::Executor executor_;
  SimHost& agent_;
  base::UniqueFunction<void(std::string)> on_exit_;
  bool running_ = true;
};

class SimCluster::Starter final : public runtime::agent::WorkerStarter {
 public:
  Starter(SimCluster& cluster, SimHost& agent, Slots slots)
      : cluster_(cluster), agent_(agent), slots_(std::move(slots)) {}
  base::Result<std::unique_ptr<runtime::agent::WorkerProcess>> start(
      const runtime::agent::WorkerStart& start,
      base::UniqueFunction<void(std::string)> on_exit) override;

 private:
  SimCluster& cluster_;
  SimHost& agent_;
  const Slots slots_;
};

class SimCluster::AgentProcess final : public SimProcess {
 public:
  AgentProcess(SimCluster& cluster, SimHost& host, base::NodeId node, const Slots& slots);

 private:
  base::Task<void> live();

  SimCluster& cluster_;
  SimHost& host_;
  Starter starter_;
  runtime::agent::Agent agent_;
  base::Gate gate_;
};

class SimCluster::WorkerHost final : public SimProcess {
 public:
  WorkerHost(SimCluster& cluster, SimHost& host, WorkerSlot& slot);
  ~WorkerHost() override;

 private:
  base::Task<void> live();

  SimCluster& cluster_;
  WorkerSlot& slot_;
  FakeEngine engine_;
  runtime::worker::Worker worker_;
  base::Gate gate_;
};

}  // namespace perdure::chaos::cluster
