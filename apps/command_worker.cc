// perdure worker: one process driving one device; started by its agent, not by people. Picks the
// real implementations.

#include <malloc.h>
#include <unistd.h>

#include "apps/commands.h"
#include "apps/process_setup.h"
#include "base/log.h"
#include "kernels/select/make_device.h"
#include "runtime/transport/ucx_fabric.h"
#include "runtime/transport_tcp/tcp_network.h"
#include "runtime/worker/slab_keeper.h"
#include "runtime/worker/threaded_engine.h"
#include "runtime/worker/worker.h"

namespace perdure::apps {
namespace {

using runtime::collective::MeshFabric;
using runtime::worker::FabricRequest;
using runtime::worker::ThreadedEngine;
using runtime::worker::Worker;
using runtime::worker::WorkerOptions;

// auto is TCP: shared memory is faster, but there UCX never tells of a dead peer.
runtime::transport::UcxTransport transport_of(const FabricRequest& request) {
  return request.transport == runtime::job::Transport::kShm
             ? runtime::transport::UcxTransport::kShm
             : runtime::transport::UcxTransport::kTcp;
}

class UcxFabrics final : public runtime::worker::FabricMaker {
 public:
  base::Result<std::unique_ptr<MeshFabric>> make(const FabricRequest& request) override {
    return source_.make({.rank = request.rank,
                         .ranks = request.ranks,
                         .epoch = request.epoch,
                         .transport = transport_of(request),
                         .network_device = request.network_device});
  }
  void get_ready(const FabricRequest& request) override {
    source_.get_ready(
        {.transport = transport_of(request), .network_device = request.network_device});
  }

 private:
  runtime::transport::UcxFabricSource source_;
};

struct WorkerArguments {
  std::string agent;
  uint32_t worker = 0;
  uint64_t incarnation = 0;
  runtime::worker::SlabKeeperOptions memory;
};

// Freed memory stays with the process: giving it back and faulting it in again costs 12 us a page
// on some machines.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

int run_worker(const WorkerArguments& arguments) {
  keep_freed_memory();
  const base::Status logs = set_up_logs();
  if (!logs.is_ok()) return report_wrong_input(logs);
  const auto address = base::Address::parse(arguments.agent);
  if (!address.is_ok()) return report_wrong_input(address.status());
  const auto secret = find_secret("");
  if (!secret.is_ok()) return report_wrong_input(secret.status());
  const FaultSetup faults(runtime::faults::ProcessRole::kWorker, arguments.worker);

  const WorkerOptions options{.agent = *address,
                              .worker = base::WorkerId(arguments.worker),
                              .incarnation = base::Incarnation(arguments.incarnation),
                              .secret = *secret,
                              .pid = static_cast<uint64_t>(::getpid()),
                              .nonce_seed = random_seed()};
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  runtime::transport_tcp::TcpNetwork network(io.get_executor(), clock);
  UcxFabrics fabrics;
  runtime::worker::NoSnapshots none;
  std::unique_ptr<runtime::worker::SlabKeeper> slab;
  if (!arguments.memory.own_slots.empty()) {
    auto opened = runtime::worker::SlabKeeper::open(arguments.memory, clock);
    if (!opened.is_ok()) return report_wrong_input(opened.status());
    slab = std::move(opened).value();
  }
  runtime::worker::SnapshotKeeper& snapshots =
      slab != nullptr ? static_cast<runtime::worker::SnapshotKeeper&>(*slab) : none;
  ThreadedEngine engine({.clock = clock,
                         .fabrics = fabrics,
                         .snapshots = snapshots,
                         .make_device = kernels::select::make_device},
                        io.get_executor());
  Worker worker(options, {network, clock, io.get_executor(), engine});
  const base::Status status = run_to_end<base::Status>(io, worker.run(), [] {});
  // The coordinator has told the person; this line is for the logs of one worker.
  if (!status.is_ok()) {
    LOG_INFO("worker", "stopped", KV("worker", arguments.worker), KV("why", status));
  }
  return status.is_ok() ? kExitDone : kExitFailure;
}

}  // namespace

void add_worker_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("worker", "One process that trains (started by its node's agent)");
  auto arguments = std::make_shared<WorkerArguments>();
  command->add_option("--agent", arguments->agent, "HOST:PORT of the agent of its node")
      ->required();
  command->add_option("--worker", arguments->worker, "Number of this worker in the job")
      ->required();
  command->add_option("--incarnation", arguments->incarnation, "Which process of that number it is")
      ->required();
  command->add_option("--slot", arguments->memory.own_slots,
                      "Memory of the agent for a snapshot (twice, or not at all)");
  command->add_option("--other-slot", arguments->memory.other_slots,
                      "The same of another worker of the node");
  command->add_option("--reports", arguments->memory.reports,
                      "Memory of the agent for the reports of this worker's steps");
  command->footer(
      "Agents start it as:\n"
      "  perdure worker --agent 127.0.0.1:40123 --worker 3 --incarnation 65537");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_worker(*arguments); }; });
}

}  // namespace perdure::apps
