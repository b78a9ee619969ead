// perdure status: asks a running job's coordinator how it is doing.

#include <cstdio>

#include "apps/commands.h"
#include "apps/process_setup.h"
#include "base/posix_files.h"
#include "runtime/launcher/run_folder.h"
#include "runtime/launcher/status_table.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/rpc/handshake.h"
#include "runtime/transport_tcp/tcp_network.h"

namespace perdure::apps {
namespace {

using runtime::launcher::RunFolder;

constexpr base::Nanos kAnswerTimeout = std::chrono::seconds(5);

struct StatusArguments {
  std::string run_folder;
  std::string coordinator;
  bool json = false;
};

base::Task<base::Result<std::string>> ask(base::Network& network, base::Clock& clock,
                                          base::Address address, std::string secret) {
  const base::Nanos deadline = clock.now() + kAnswerTimeout;
  auto raw = co_await network.connect(address, deadline);
  CO_RETURN_IF_ERROR(raw.status());
  runtime::rpc::MessageChannel channel(std::move(raw).value());
  base::SeededRandom nonces(random_seed());
  const runtime::rpc::PeerIdentity self{.role = runtime::rpc::PeerRole::kObserver};
  CO_RETURN_IF_ERROR(co_await runtime::rpc::offer_handshake(channel, secret, self, nonces, clock));
  const runtime::rpc::Frame question =
      runtime::protocol::to_frame(runtime::protocol::StatusAsk{}, {});
  CO_RETURN_IF_ERROR(co_await channel.send(question, deadline));
  auto answer = co_await channel.receive(deadline);
  CO_RETURN_IF_ERROR(answer.status());
  CO_ASSIGN_OR_RETURN(const runtime::protocol::StatusTold told,
                      runtime::protocol::from_frame<runtime::protocol::StatusTold>(*answer));
  co_return told.json;
}

base::Result<base::Address> where(const StatusArguments& arguments) {
  if (!arguments.coordinator.empty()) return base::Address::parse(arguments.coordinator);
  base::PosixFiles files;
  const auto place = runtime::launcher::read_coordinator(RunFolder(arguments.run_folder), files);
  if (!place.is_ok()) {
    return place.status().annotate("no job in run folder '" + arguments.run_folder + "'");
  }
  return place->address;
}

int status(const StatusArguments& arguments) {
  if (arguments.coordinator.empty() == arguments.run_folder.empty()) {
    return report_wrong_input(
        base::invalid_argument("a run folder or --coordinator must be given, not both"));
  }
  const auto address = where(arguments);
  if (!address.is_ok()) return report_wrong_input(address.status());
  const auto secret = find_secret(arguments.run_folder);
  if (!secret.is_ok()) return report_wrong_input(secret.status());
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  runtime::transport_tcp::TcpNetwork network(io.get_executor(), clock);
  const auto told =
      run_to_end<base::Result<std::string>>(io, ask(network, clock, *address, *secret), [] {});
  if (!told.is_ok()) {
    return report_error(told.status().annotate("coordinator at " + address->to_string()));
  }
  if (arguments.json) {
    std::printf("%s\n", told->c_str());
    return kExitDone;
  }
  const auto table = runtime::launcher::status_table(*told);
  if (!table.is_ok()) return report_error(table.status());
  std::fputs(table->c_str(), stdout);
  return kExitDone;
}

}  // namespace

void add_status_command(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("status", "What a running job is doing");
  auto arguments = std::make_shared<StatusArguments>();
  command->add_option("folder", arguments->run_folder, "Run folder of the job (its --out)");
  command->add_option("--coordinator", arguments->coordinator,
                      "HOST:PORT of its coordinator instead; the secret in PERDURE_JOB_SECRET");
  command->add_flag("--json", arguments->json, "The coordinator's own words");
  command->footer(
      "Examples:\n"
      "  perdure status runs/kjv\n"
      "  perdure status runs/kjv --json | jq .epoch");
  command->callback([arguments, &action] { action = [arguments] { return status(*arguments); }; });
}

}  // namespace perdure::apps
