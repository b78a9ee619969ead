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

SimCluster::Handle::Handle(SimCluster& cluster, base::WorkerId worker, base::Executor executor,
                           SimHost& agent, base::UniqueFunction<void(std::string)> on_exit)
    : cluster_(cluster),
      worker_(worker),
      executor_(std::move(executor)),
      agent_(agent),
      on_exit_(std::move(on_exit)) {
  cluster_.slot(worker_).handle = this;
}

SimCluster::Handle::~Handle() {
  WorkerSlot& slot = cluster_.slot(worker_);
  if (slot.handle == this) slot.handle = nullptr;
  if (running_ && !cluster_.ending_) cluster_.kill_worker(worker_);
}

void SimCluster::Handle::kill() {
  if (running_) cluster_.kill_worker(worker_);
}

void SimCluster::Handle::exited(const std::string& how) {
  if (!std::exchange(running_, false)) return;
  base::post(executor_, [on_exit = std::move(on_exit_), how]() mutable { on_exit(how); });
  agent_.mark_ready();
}

base::Result<std::unique_ptr<runtime::agent::WorkerProcess>> SimCluster::Starter::start(
    const runtime::agent::WorkerStart& start, base::UniqueFunction<void(std::string)> on_exit) {
  WorkerSlot& slot = cluster_.slot(start.worker);
  auto handle = std::make_unique<Handle>(cluster_, start.worker, agent_.executor(), agent_,
                                         std::move(on_exit));
  slot.start = start;
  // Between the hosts' turns, as a kernel would.
  cluster_.world_.call_at(cluster_.world_.now(), [cluster = &cluster_, worker = start.worker,
                                                  incarnation = start.incarnation] {
    WorkerSlot& place = cluster->slot(worker);
    if (!place.start.has_value() || place.start->incarnation != incarnation ||
        place.handle == nullptr)
      return;
    if (place.host->is_alive()) place.host->kill(Crash::kProcess);
    place.host->restart();
  });
  return std::unique_ptr<runtime::agent::WorkerProcess>(std::move(handle));
}

SimCluster::AgentProcess::AgentProcess(SimCluster& cluster, SimHost& host, base::NodeId node)
    : starter_(cluster, host),
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
  static_cast<void>(status.is_ok());  // what it means is seen by who misses the agent
}

SimCluster::WorkerHost::WorkerHost(SimCluster& cluster, SimHost& host, base::WorkerId worker)
    : cluster_(cluster),
      id_(worker),
      engine_(host, worker, cluster.slot(worker).start->incarnation, cluster.job_, cluster.plane_,
              cluster, seed_of(cluster, host)),
      worker_({.agent = cluster.slot(worker).start->agent,
               .worker = worker,
               .incarnation = cluster.slot(worker).start->incarnation,
               .secret = cluster.coordinator_options().secret,
               .pid = 1,
               .nonce_seed = seed_of(cluster, host)},
              {.network = host.network(),
               .clock = host.clock(),
               .executor = host.executor(),
               .engine = engine_}) {
  cluster.slot(worker).engine = &engine_;
  CHECK(base::spawn(host.executor(), gate_, live()).is_ok());
}

SimCluster::WorkerHost::~WorkerHost() {
  WorkerSlot& slot = cluster_.slot(id_);
  if (slot.engine == &engine_) slot.engine = nullptr;
}

base::Task<void> SimCluster::WorkerHost::live() {
  const base::Status status = co_await worker_.run();
  cluster_.worker_exited(id_, status.is_ok() ? "exit code 0" : "exit code 3");
}

}  // namespace perdure::chaos::cluster
