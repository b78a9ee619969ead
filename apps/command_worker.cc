// perdure worker: one rank of a job; started by `perdure train`, not by people. Picks the real
// implementations.

#include <malloc.h>
#include <unistd.h>

#include <cstdlib>

#include "apps/commands.h"
#include "base/log.h"
#include "base/posix_clock.h"
#include "kernels/select/make_device.h"
#include "runtime/launcher/local_job.h"
#include "runtime/transport/ucx_fabric.h"
#include "runtime/transport_tcp/tcp_network.h"
#include "runtime/worker/worker.h"

namespace perdure::apps {
namespace {

using runtime::collective::MeshFabric;
using runtime::worker::FabricRequest;
using runtime::worker::Worker;
using runtime::worker::WorkerOptions;
using runtime::worker::WorkerServices;

base::Result<std::unique_ptr<MeshFabric>> make_fabric(const FabricRequest& request) {
  // auto is TCP: shared memory is faster, but there UCX never tells of a dead peer.
  const bool shm = request.transport == runtime::job::Transport::kShm;
  return runtime::transport::make_ucx_fabric(
      {.rank = request.rank,
       .ranks = request.ranks,
       .epoch = request.epoch,
       .transport =
           shm ? runtime::transport::UcxTransport::kShm : runtime::transport::UcxTransport::kTcp});
}

// Freed memory stays with the process: giving it back and faulting it in again costs 12 us a page
// on some machines.
void keep_freed_memory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 16 << 20);
}

int run_worker(const std::string& coordinator, uint32_t id) {
  keep_freed_memory();
  const char* levels = std::getenv("PERDURE_LOG");
  const base::Status set = base::set_log_levels(levels == nullptr ? "warning" : levels);
  if (!set.is_ok()) return report_error(set.annotate("PERDURE_LOG"));
  base::Result<base::Address> address = base::Address::parse(coordinator);
  if (!address.is_ok()) return report_error(address.status());
  const char* token = std::getenv(runtime::launcher::kTokenVariable);
  WorkerOptions options{.coordinator = *address,
                        .worker = base::WorkerId(id),
                        .job_token = token == nullptr ? "" : token,
                        .pid = static_cast<uint64_t>(::getpid())};
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  runtime::transport_tcp::TcpNetwork network(io.get_executor(), clock);
  Worker worker(options, WorkerServices{.network = network,
                                        .clock = clock,
                                        .executor = io.get_executor(),
                                        .make_device = kernels::select::make_device,
                                        .make_fabric = make_fabric});
  base::Gate gate;
  std::optional<base::Status> status;
  CHECK(base::spawn(io.get_executor(), gate, base::store_result(worker.run(), status)).is_ok());
  io.run();
  CHECK(status.has_value());
  // The coordinator has told the person; this line is for the logs of one worker.
  if (!status->is_ok())
    LOG_ERROR("worker", "stopped", KV("worker", id), KV("why", status->to_string()));
  return status->is_ok() ? kExitDone : kExitFailure;
}

}  // namespace

void add_worker_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("worker", "One rank of a job (started by `perdure train`)");
  auto coordinator = std::make_shared<std::string>();
  auto id = std::make_shared<uint32_t>(0);
  command->add_option("--coordinator", *coordinator, "HOST:PORT of the job's coordinator")
      ->required();
  command->add_option("--worker", *id, "Number of this worker in the job")->required();
  command->callback([coordinator, id, &action] {
    action = [coordinator, id] { return run_worker(*coordinator, *id); };
  });
}

}  // namespace perdure::apps
