#include "chaos/cluster/cluster_processes.h"

namespace perdure::chaos::cluster {
namespace {

uint64_t seed_of(const SimCluster& cluster, const SimHost& host) {
  return base::mix64(cluster.options().seed * 1'000'003 + host.index() * 1009 + host.incarnation());
}

}  // namespace

SimCluster::CoordinatorProcess::CoordinatorProcess(SimCluster& cluster, SimHost& host)
    : cluster_(cluster), host_(host), journal_(cluster.journal_) {
  auto listener = host.network().listen(base::Address("c", kCoordinatorPort));
  CHECK(listener.is_ok()) << listener.status();
  runtime::coordinator::CoordinatorOptions options = cluster.coordinator_options();
  options.nonce_seed = seed_of(cluster, host);
  coordinator_ = std::make_unique<runtime::coordinator::Coordinator>(
      options, std::move(listener).value(), journal_, host.clock(), host.executor(),
      cluster.ledger_);
  cluster.coordinator_ = coordinator_.get();
  CHECK(base::spawn(host.executor(), gate_, live()).is_ok());
}

SimCluster::CoordinatorProcess::~CoordinatorProcess() { cluster_.coordinator_ = nullptr; }

base::Task<void> SimCluster::CoordinatorProcess::live() {
  const base::Status status = co_await coordinator_->run();
  cluster_.outcome_ = status;
}

SimCluster::Handle::Handle(SimCluster& cluster, WorkerSlot& slot, const base::Executor& executor,
                           SimHost& agent, base::UniqueFunction<void(std::string)> on_exit)
    : cluster_(cluster),
      slot_(slot),
      executor_(executor),
      agent_(agent),
      on_exit_(std::move(on_exit)) {
  slot_.handle = this;
}

SimCluster::Handle::~Handle() {
  if (slot_.handle == this) slot_.handle = nullptr;
  if (running_ && !cluster_.ending_) cluster_.kill(slot_);
}

void SimCluster::Handle::kill() {
  if (running_) cluster_.kill(slot_);
}

void SimCluster::Handle::exited(const std::string& how) {
  if (!std::exchange(running_, false)) return;
  base::post(executor_, [on_exit = std::move(on_exit_), how]() mutable { on_exit(how); });
  agent_.mark_ready();
}

base::Result<std::unique_ptr<runtime::agent::WorkerProcess>> SimCluster::Starter::start(
    const runtime::agent::WorkerStart& start, base::UniqueFunction<void(std::string)> on_exit) {
  WorkerSlot& slot = *slots_.at(start.worker);
  auto handle =
      std::make_unique<Handle>(cluster_, slot, agent_.executor(), agent_, std::move(on_exit));
  slot.start = start;
  // Between the hosts' turns, as a kernel would.
  cluster_.world_.call_at(cluster_.world_.now(), [&place = slot, incarnation = start.incarnation] {
    if (!place.start.has_value() || place.start->incarnation != incarnation ||
        place.handle == nullptr)
      return;
    if (place.host->is_alive()) place.host->kill(Crash::kProcess);
    place.host->restart();
  });
  return std::unique_ptr<runtime::agent::WorkerProcess>(std::move(handle));
}

SimCluster::AgentProcess::AgentProcess(SimCluster& cluster, SimHost& host, base::NodeId node,
                                       const Slots& slots)
    : cluster_(cluster),
      host_(host),
      starter_(cluster, host, slots),
      agent_({.node = node,
              .pid = 1,
              .secret = cluster.coordinator_options().secret,
              .listen = base::Address(host.name(), 0),
              .worker_restarts = 1000,
              .seed = seed_of(cluster, host)},
             {.network = host.network(),
              .clock = host.clock(),
              .executor = host.executor(),
              .starter = starter_},
             [] { return base::Address("c", kCoordinatorPort); }) {
  CHECK(base::spawn(host.executor(), gate_, live()).is_ok());
}

base::Task<void> SimCluster::AgentProcess::live() {
  const base::Status status = co_await agent_.run();
  cluster_.agent_ended(host_, status);
}

SimCluster::WorkerHost::WorkerHost(SimCluster& cluster, SimHost& host, WorkerSlot& slot)
    : cluster_(cluster),
      slot_(slot),
      engine_(host, slot.start->worker, slot.start->incarnation, cluster.job_, cluster.plane_,
              *slot.memory, cluster, seed_of(cluster, host)),
      worker_({.agent = slot.start->agent,
               .worker = slot.start->worker,
               .incarnation = slot.start->incarnation,
               .secret = cluster.coordinator_options().secret,
               .pid = 1,
               .nonce_seed = seed_of(cluster, host)},
              {.network = host.network(),
               .clock = host.clock(),
               .executor = host.executor(),
               .engine = engine_}) {
  slot.engine = &engine_;
  CHECK(base::spawn(host.executor(), gate_, live()).is_ok());
}

SimCluster::WorkerHost::~WorkerHost() {
  if (slot_.engine == &engine_) slot_.engine = nullptr;
}

base::Task<void> SimCluster::WorkerHost::live() {
  const base::Status status = co_await worker_.run();
  cluster_.worker_exited(slot_, status.is_ok() ? "exit code 0" : "exit code 3");
}

}  // namespace perdure::chaos::cluster
