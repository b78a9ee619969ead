// perdure coordinator: the control side of one job, and what a person sees of it. Started by
// `perdure train`, again whenever it dies.

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "apps/commands.h"
#include "apps/job_display.h"
#include "apps/process_setup.h"
#include "base/hash.h"
#include "base/posix_files.h"
#include "parallel/layer_cost.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/run_recorder.h"
#include "runtime/job/job_plan.h"
#include "runtime/journal_rocksdb/rocksdb_journal.h"
#include "runtime/launcher/run_folder.h"
#include "runtime/transport_tcp/tcp_network.h"

namespace perdure::apps {
namespace {

using runtime::coordinator::Coordinator;
using runtime::coordinator::CoordinatorOptions;
using runtime::coordinator::RunRecorder;
using runtime::job::JobConfig;
using runtime::launcher::RunFolder;

constexpr uint64_t kJobFileBytesMax = 1 << 20;

struct CoordinatorArguments {
  std::string run_folder;
  std::string source;
  std::vector<std::string> overrides;
  std::string out;
  uint32_t nodes = 1;
  uint32_t workers_per_node = 1;
  bool quiet = false;
};

struct LoadedJob {
  JobConfig config;
  runtime::protocol::JobText text;
};

base::Result<LoadedJob> load(const CoordinatorArguments& arguments, base::FileSystem& files) {
  const RunFolder folder(arguments.run_folder);
  ASSIGN_OR_RETURN(const auto bytes, base::read_file(files, folder.job(), kJobFileBytesMax));
  LoadedJob job;
  job.text = {.toml = std::string(base::as_text(bytes)),
              .source = arguments.source.empty() ? folder.job() : arguments.source,
              .overrides = arguments.overrides};
  RETURN_IF_ERROR(
      runtime::job::load_job(job.text.toml, job.text.source, job.text.overrides, &job.config));
  return job;
}

base::Result<CoordinatorOptions> make_options(const CoordinatorArguments& arguments,
                                              const LoadedJob& job, const std::string& secret) {
  CoordinatorOptions options;
  // The same in every life of the job's coordinator.
  options.job_id = runtime::coordinator::digest_text(
      base::hash64(base::as_byte_span(secret), base::hash64(base::as_byte_span(job.text.toml))));
  options.secret = secret;
  options.job = job.text;
  options.nodes = arguments.nodes;
  options.workers_per_node = arguments.workers_per_node;
  ASSIGN_OR_RETURN(options.machine.model, parallel::make_model_spec(job.config.model));
  options.machine.pipelines = job.config.layout.pipelines;
  options.machine.stages = job.config.layout.stages;
  options.machine.micro_batches = job.config.batch.micro_batches;
  options.machine.grain = job.config.numerics.grain;
  options.machine.layer_cost = parallel::relative_layer_costs(options.machine.model);
  options.machine.workers_expected = arguments.nodes * arguments.workers_per_node;
  options.machine.grow = job.config.recovery.grow;
  options.early_exits_max = std::min(job.config.recovery.worker_restarts, 2u) + 1;
  options.lease.lease = std::chrono::milliseconds(job.config.recovery.lease_ms);
  options.lease.beat = options.lease.lease / 4;
  options.nonce_seed = random_seed();
  return options;
}

int finish(const base::Status& status, RunRecorder& recorder) {
  const base::Status written = recorder.finish(status);
  // Whoever interrupted it knows why, and says so.
  if (status.code() == base::StatusCode::kCancelled) return kExitFailure;
  if (!status.is_ok()) return report_error(status);
  if (!written.is_ok()) return report_error(written.annotate("the run is done, but"));
  const auto& numbers = recorder.numbers();
  std::printf("step %llu  loss %.6f  params %s\n", static_cast<unsigned long long>(numbers.steps),
              numbers.loss, runtime::coordinator::digest_text(numbers.params_digest).c_str());
  return kExitDone;
}

int run_coordinator(const CoordinatorArguments& arguments) {
  const base::Status logs = set_up_logs();
  if (!logs.is_ok()) return report_wrong_input(logs);
  base::PosixFiles files;
  const auto job = load(arguments, files);
  if (!job.is_ok()) return report_wrong_input(job.status());
  const auto secret = find_secret(arguments.run_folder);
  if (!secret.is_ok()) return report_wrong_input(secret.status());
  const auto options = make_options(arguments, *job, *secret);
  if (!options.is_ok()) return report_wrong_input(options.status());
  const FaultSetup faults(runtime::faults::ProcessRole::kCoordinator, 0);

  const RunFolder folder(arguments.run_folder);
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  runtime::transport_tcp::TcpNetwork network(io.get_executor(), clock);
  const JobConfig& config = job->config;
  auto listener = network.listen(base::Address(config.run.listen, config.run.port));
  if (!listener.is_ok()) return report_wrong_input(listener.status());
  const base::Address address = (*listener)->address();

  auto journal = runtime::journal_rocksdb::open_rocksdb_journal(folder.journal());
  if (!journal.is_ok()) return report_error(journal.status());
  const auto records = (*journal)->read_all();
  if (!records.is_ok()) return report_error(records.status());
  const uint64_t tokens_per_step =
      config.samples_per_step() * static_cast<uint64_t>(config.model.context);
  auto recorder = RunRecorder::open({.folder = arguments.out,
                                     .steps = config.run.steps,
                                     .tokens_per_step = tokens_per_step,
                                     .ranks = config.layout.ranks(),
                                     .continues = !records->empty()},
                                    files, clock);
  if (!recorder.is_ok()) return report_wrong_input(recorder.status());
  JobDisplay display(**recorder, config.run.steps, tokens_per_step, arguments.quiet);
  Coordinator coordinator(*options, std::move(listener).value(), **journal, clock,
                          io.get_executor(), display);
  // Only now: who finds the file finds somebody who listens.
  const base::Status placed = runtime::launcher::write_coordinator(
      folder, files, {.address = address, .pid = static_cast<uint64_t>(::getpid())});
  if (!placed.is_ok()) return report_error(placed);
  SignalWatch stop(io, {SIGINT, SIGTERM},
                   [&coordinator] { coordinator.stop(base::cancelled("interrupted")); });
  const base::Status status =
      run_to_end<base::Status>(io, coordinator.run(), [&stop] { stop.cancel(); });
  display.end_line();
  return finish(status, **recorder);
}

}  // namespace

void add_coordinator_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("coordinator", "The control side of a job (started by `perdure train`)");
  auto arguments = std::make_shared<CoordinatorArguments>();
  command
      ->add_option("--run-folder", arguments->run_folder,
                   "Run folder: holds the job, its secret and the journal")
      ->required();
  command->add_option("--nodes", arguments->nodes, "Nodes of the job, spare ones included");
  command->add_option("--workers-per-node", arguments->workers_per_node, "Workers of each node");
  command->add_option("--source", arguments->source, "Name of the job file, for messages");
  command->add_option("--set", arguments->overrides, "Change a key of the job file: key=value")
      ->allow_extra_args(false);
  command->add_option("--out", arguments->out, "Folder for what the run leaves behind");
  command->add_flag("--quiet", arguments->quiet, "Only the last line");
  command->footer(
      "Example, a job that was interrupted with its launcher:\n"
      "  perdure coordinator --run-folder runs/kjv --nodes 2 --workers-per-node 2 --out runs/kjv");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_coordinator(*arguments); }; });
}

}  // namespace perdure::apps
