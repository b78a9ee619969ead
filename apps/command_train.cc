// perdure train: runs a job on this machine. Checks all input first, then starts the processes and
// sees that none is left.

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "apps/commands.h"
#include "apps/process_setup.h"
#include "base/posix_files.h"
#include "runtime/faults/fault_server.h"
#include "runtime/job/job_data.h"
#include "runtime/job/job_plan.h"
#include "runtime/launcher/process_starter.h"
#include "runtime/launcher/run_folder.h"
#include "runtime/launcher/supervisor.h"

namespace perdure::apps {
namespace {

using runtime::faults::FaultServer;
using runtime::faults::FaultSpec;
using runtime::job::JobConfig;
using runtime::launcher::JobEnd;
using runtime::launcher::RunFolder;
using runtime::launcher::Supervisor;
using runtime::launcher::SupervisorOptions;

constexpr uint64_t kJobFileBytesMax = 1 << 20;
constexpr uint32_t kNodesMax = 4096;

struct TrainArguments {
  std::string job_file;
  std::vector<std::string> overrides;
  std::string out;
  uint32_t nodes = 1;
  uint32_t spares = 0;
  std::vector<std::string> faults;
  std::string worker_program = "/proc/self/exe";
  bool quiet = false;
};

struct CheckedInput {
  JobConfig job;
  std::string toml;
  std::vector<FaultSpec> faults;
  uint32_t workers_per_node = 1;
};

// A file that the kernel would not start is better found before anything is started.
base::Status check_program(const std::string& program) {
  char magic[4] = {};
  std::ifstream(program, std::ios::binary).read(magic, sizeof magic);
  const std::string_view lead(magic, sizeof magic);
  if (::access(program.c_str(), X_OK) != 0 ||
      (lead != std::string_view("\177ELF", 4) && !lead.starts_with("#!"))) {
    return base::invalid_argument("cannot start worker program '" + program + "'");
  }
  return base::Status::ok();
}

base::Status check_nodes(const TrainArguments& arguments, const JobConfig& job) {
  const uint32_t ranks = job.layout.ranks();
  if (arguments.nodes == 0 || arguments.nodes > ranks) {
    return base::invalid_argument("--nodes " + std::to_string(arguments.nodes) +
                                  ": must be from 1 to the job's workers (" +
                                  std::to_string(ranks) + ")");
  }
  if (arguments.spares > kNodesMax) {
    return base::invalid_argument("--spares " + std::to_string(arguments.spares) +
                                  ": must be at most " + std::to_string(kNodesMax));
  }
  return base::Status::ok();
}

base::Status check_folder(const std::string& out, base::FileSystem& files) {
  const auto place = runtime::launcher::read_coordinator(RunFolder(out), files);
  if (!place.is_ok()) return base::Status::ok();
  // The number may be another process's by now.
  std::ifstream file("/proc/" + std::to_string(place->pid) + "/cmdline", std::ios::binary);
  const std::string line{std::istreambuf_iterator<char>(file), {}};
  if (line.find(std::string("coordinator") + '\0') == std::string::npos) return base::Status::ok();
  return base::already_exists("run folder '" + out + "' is in use by a job (process " +
                              std::to_string(place->pid) + ")");
}

// A fault for somebody who does not exist would never strike.
base::Status check_targets(const CheckedInput& input, uint32_t nodes) {
  for (const FaultSpec& fault : input.faults) {
    const bool is_node = fault.target.kind == runtime::faults::TargetKind::kNode;
    if (!is_node && fault.target.kind != runtime::faults::TargetKind::kWorker) continue;
    const uint32_t count = is_node ? nodes : nodes * input.workers_per_node;
    if (fault.target.number < count) continue;
    return base::invalid_argument("--fault \"" + fault.text + "\": this job has " +
                                  (is_node ? "nodes" : "workers") + " 0 to " +
                                  std::to_string(count - 1));
  }
  return base::Status::ok();
}

// Everything that can be wrong with the input, before anything is written or started.
base::Result<CheckedInput> check_input(const TrainArguments& arguments, base::FileSystem& files) {
  CheckedInput input;
  ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                   base::read_file(files, arguments.job_file, kJobFileBytesMax));
  input.toml = base::as_text(bytes);
  RETURN_IF_ERROR(
      runtime::job::load_job(input.toml, arguments.job_file, arguments.overrides, &input.job));
  RETURN_IF_ERROR(runtime::job::make_job_plan(input.job).status());
  RETURN_IF_ERROR(runtime::job::open_job_data(input.job).status());
  RETURN_IF_ERROR(check_nodes(arguments, input.job));
  ASSIGN_OR_RETURN(input.faults, runtime::faults::parse_faults(arguments.faults));
  RETURN_IF_ERROR(check_program(arguments.worker_program));
  if (!arguments.out.empty()) RETURN_IF_ERROR(check_folder(arguments.out, files));
  input.workers_per_node = (input.job.layout.ranks() + arguments.nodes - 1) / arguments.nodes;
  RETURN_IF_ERROR(check_targets(input, arguments.nodes + arguments.spares));
  return input;
}

// A folder of its own for a run that keeps nothing; removed at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(base::FileSystem& files) : files_(files) {}
  ~TemporaryFolder() {
    if (!path_.empty()) (void)runtime::launcher::remove_tree(files_, path_).is_ok();
  }
  base::Result<std::string> make() {
    const char* base_folder = std::getenv("TMPDIR");
    std::string path =
        std::string(base_folder == nullptr ? "/tmp" : base_folder) + "/perdure-XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) {
      return base::failed_precondition("cannot make a folder in " + path);
    }
    path_ = path;
    return path;
  }

 private:
  base::FileSystem& files_;
  std::string path_;
};

SupervisorOptions make_supervisor(const TrainArguments& arguments, const CheckedInput& input,
                                  const RunFolder& folder, const std::string& secret) {
  SupervisorOptions options;
  options.program = "/proc/self/exe";
  options.nodes = arguments.nodes + arguments.spares;
  auto& words = options.coordinator_arguments;
  words = {"coordinator",
           "--run-folder",
           folder.path(),
           "--source",
           arguments.job_file,
           "--nodes",
           std::to_string(options.nodes),
           "--workers-per-node",
           std::to_string(input.workers_per_node)};
  for (const std::string& assignment : arguments.overrides) {
    words.insert(words.end(), {"--set", assignment});
  }
  if (!arguments.out.empty()) words.insert(words.end(), {"--out", arguments.out});
  if (arguments.quiet) words.push_back("--quiet");
  options.agent_arguments = {"agent",
                             "--run-folder",
                             folder.path(),
                             "--worker-restarts",
                             std::to_string(input.job.recovery.worker_restarts),
                             "--worker-program",
                             arguments.worker_program};
  options.environment = runtime::launcher::job_environment(secret);
  options.environment.emplace_back(runtime::faults::kFaultSocketVariable,
                                   input.faults.empty() ? "" : folder.fault_socket());
  return options;
}

// Runs the job; the fault server, when there is one, ends after all it could strike.
base::Task<base::Result<JobEnd>> run_job(Supervisor& supervisor, FaultServer* faults) {
  auto end = co_await supervisor.run();
  if (faults != nullptr) co_await faults->stop();
  co_return end;
}

base::Result<JobEnd> supervise(const TrainArguments& arguments, const CheckedInput& input,
                               const RunFolder& folder, base::FileSystem& files,
                               const std::string& secret) {
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  std::unique_ptr<Supervisor> supervisor;
  std::unique_ptr<FaultServer> faults;
  SupervisorOptions options = make_supervisor(arguments, input, folder, secret);
  if (!input.faults.empty()) {
    faults = std::make_unique<FaultServer>(
        runtime::faults::FaultServerOptions{
            .faults = input.faults,
            .socket = folder.fault_socket(),
            .log = folder.fault_log(),
            .start_node = [&supervisor](uint32_t node) { supervisor->start_node(node); },
            .send_signal = {}},
        files, clock, io.get_executor());
    RETURN_IF_ERROR(faults->start());
    options.on_exit = [&faults](int pid) { faults->on_exit(pid); };
    options.may_come_back = [&faults] { return faults->has_unused_start(); };
  }
  supervisor = std::make_unique<Supervisor>(std::move(options), clock, io.get_executor());
  SignalWatch stop(io, {SIGINT, SIGTERM}, [&supervisor] { supervisor->interrupt(); });
  auto end = run_to_end<base::Result<JobEnd>>(io, run_job(*supervisor, faults.get()),
                                              [&stop] { stop.cancel(); });
  if (faults != nullptr) {
    for (const std::string& unused : faults->unused()) {
      std::fprintf(stderr, "perdure: fault never struck: %s\n", unused.c_str());
    }
  }
  return end;
}

int train(const TrainArguments& arguments) {
  const base::Status logs = set_up_logs();
  if (!logs.is_ok()) return report_wrong_input(logs);
  base::PosixFiles files;
  const base::Result<CheckedInput> input = check_input(arguments, files);
  if (!input.is_ok()) return report_wrong_input(input.status());
  TemporaryFolder temporary(files);
  std::string path = arguments.out;
  if (path.empty()) {
    auto made = temporary.make();
    if (!made.is_ok()) return report_wrong_input(made.status());
    path = *made;
  }
  const RunFolder folder(path);
  const std::string secret = random_hex(32);
  const base::Status ready = runtime::launcher::make_run_folder(folder, files, secret, input->toml);
  if (!ready.is_ok()) {
    return report_wrong_input(ready.annotate("output folder '" + path + "'"));
  }
  const auto end = supervise(arguments, *input, folder, files, secret);
  if (!end.is_ok()) return report_error(end.status());
  if (!end->why.empty()) report_error(base::internal(end->why));
  return end->exit_code;
}

}  // namespace

void add_train_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("train", "Train a model as a job file says, on this machine");
  auto arguments = std::make_shared<TrainArguments>();
  command
      ->add_option("job", arguments->job_file,
                   "Job file (TOML); `perdure keys` lists what may stand in it")
      ->required();
  command
      ->add_option("--set", arguments->overrides,
                   "Change a key of the job file: key=value (repeatable)")
      ->allow_extra_args(false);
  command->add_option("--out", arguments->out,
                      "Folder for events.jsonl, metrics.csv, digests.csv and summary.json");
  command->add_option("--nodes", arguments->nodes,
                      "Nodes (groups of processes that die together) that share the job's workers");
  command->add_option("--spares", arguments->spares, "Nodes more, whose workers stand by");
  command
      ->add_option("--fault", arguments->faults,
                   "Something that shall go wrong (repeatable): \"at=... target=... do=...\"")
      ->allow_extra_args(false);
  command->add_option("--worker-program", arguments->worker_program,
                      "Program that is started for each worker");
  command->add_flag("--quiet", arguments->quiet, "Only the last line");
  command->footer(
      "Examples:\n"
      "  perdure train examples/tiny.toml\n"
      "  perdure train examples/kjv.toml --set layout.pipelines=2 --set layout.stages=2 --out "
      "runs/kjv\n"
      "  perdure train examples/kjv.toml --set layout.pipelines=2 --nodes 2 --spares 1 \\\n"
      "    --fault \"at=step:20,phase=reduce target=node:1 do=kill\"\n"
      "\n"
      "A fault is \"at=WHEN target=WHOM do=WHAT\":\n"
      "  at      "
      "step:N[,phase=begin|compute|reduce|vote|voted|apply|commit|snapshot|kept|evaluate]\n"
      "          epoch:N[,phase=fence|collect|decide|prepare|transfer|gate|go]\n"
      "          time:1.5s\n"
      "  target  worker:N, node:N, coordinator, job, source (with epoch:N,phase=transfer)\n"
      "  do      kill, stop[:SECONDS], exit, slow:FACTOR, drop, start\n"
      "\n"
      "The last line printed is: step N  loss L  params HEX");
  command->callback([arguments, &action] { action = [arguments] { return train(*arguments); }; });
}

}  // namespace perdure::apps
