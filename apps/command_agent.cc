// perdure agent: one node of a job. Started by `perdure train` for the nodes of this machine, by
// people (or a scheduler) on other machines.

#include <unistd.h>

#include <csignal>

#include "apps/commands.h"
#include "apps/process_setup.h"
#include "base/log.h"
#include "base/posix_files.h"
#include "runtime/agent/agent.h"
#include "runtime/faults/fault_signals.h"
#include "runtime/launcher/process_starter.h"
#include "runtime/launcher/run_folder.h"
#include "runtime/transport_tcp/tcp_network.h"

namespace perdure::apps {
namespace {

using runtime::agent::Agent;
using runtime::agent::AgentOptions;
using runtime::launcher::RunFolder;

struct AgentArguments {
  uint32_t node = 0;
  std::string run_folder;
  std::string coordinator;
  std::string worker_program = "/proc/self/exe";
  uint32_t worker_restarts = 3;
};

base::Result<base::Address> find_coordinator(const AgentArguments& arguments) {
  if (!arguments.coordinator.empty()) return base::Address::parse(arguments.coordinator);
  base::PosixFiles files;
  ASSIGN_OR_RETURN(const auto place,
                   runtime::launcher::read_coordinator(RunFolder(arguments.run_folder), files));
  return place.address;
}

int run_agent(const AgentArguments& arguments) {
  const base::Status logs = set_up_logs();
  if (!logs.is_ok()) return report_wrong_input(logs);
  if (arguments.coordinator.empty() == arguments.run_folder.empty()) {
    return report_wrong_input(
        base::invalid_argument("one of --coordinator and --run-folder must be given"));
  }
  if (!arguments.coordinator.empty()) {
    const auto address = base::Address::parse(arguments.coordinator);
    if (!address.is_ok()) return report_wrong_input(address.status());
  }
  const auto secret = find_secret(arguments.run_folder);
  if (!secret.is_ok()) return report_wrong_input(secret.status());
  const FaultSetup faults(runtime::faults::ProcessRole::kAgent, arguments.node);

  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  runtime::transport_tcp::TcpNetwork network(io.get_executor(), clock);
  runtime::launcher::ProcessStarter starter(
      {.program = arguments.worker_program, .secret = *secret}, io.get_executor());
  const AgentOptions options{.node = base::NodeId(arguments.node),
                             .pid = static_cast<uint64_t>(::getpid()),
                             .secret = *secret,
                             .worker_restarts = arguments.worker_restarts,
                             .seed = random_seed()};
  Agent agent(options, {network, clock, io.get_executor(), starter},
              [&arguments] { return find_coordinator(arguments); });
  SignalWatch stop(io, {SIGINT, SIGTERM}, [&agent] { agent.stop(base::cancelled("interrupted")); });
  SignalWatch revive(io, {runtime::faults::start_signal()}, [&agent] { agent.revive(); });
  const base::Status status = run_to_end<base::Status>(io, agent.run(), [&] {
    stop.cancel();
    revive.cancel();
  });
  // The coordinator tells the person how the job ended.
  LOG_INFO("agent", "node ends", KV("node", arguments.node), KV("why", status));
  return status.is_ok() ? kExitDone : kExitFailure;
}

}  // namespace

void add_agent_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("agent", "One node of a job: keeps the node's workers running");
  auto arguments = std::make_shared<AgentArguments>();
  command->add_option("--node", arguments->node, "Number of this node in the job")->required();
  command->add_option("--coordinator", arguments->coordinator,
                      "HOST:PORT of the job's coordinator, when it runs on another machine");
  command->add_option("--run-folder", arguments->run_folder,
                      "Run folder of a job on this machine; names coordinator and secret");
  command->add_option("--worker-program", arguments->worker_program,
                      "Program that is started for each worker");
  command->add_option("--worker-restarts", arguments->worker_restarts,
                      "Times in a row that a dead worker is started again");
  command->footer(
      "The job's secret is read from PERDURE_JOB_SECRET, else from the run folder.\n"
      "\n"
      "Example, on another machine:\n"
      "  PERDURE_JOB_SECRET=$(ssh head cat runs/kjv/control/secret) \\\n"
      "    perdure agent --coordinator head:4711 --node 2");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_agent(*arguments); }; });
}

}  // namespace perdure::apps
