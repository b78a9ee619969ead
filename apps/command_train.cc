// perdure train: runs a job on this machine. Checks all input first, then starts the workers.

#include <sys/random.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <cstdio>

#include "apps/commands.h"
#include "base/log.h"
#include "base/posix_clock.h"
#include "base/posix_files.h"
#include "runtime/coordinator/run_recorder.h"
#include "runtime/job/job_data.h"
#include "runtime/job/job_plan.h"
#include "runtime/launcher/local_job.h"
#include "runtime/launcher/progress.h"
#include "runtime/transport_tcp/tcp_network.h"

namespace perdure::apps {
namespace {

using runtime::coordinator::RunRecorder;
using runtime::job::JobConfig;
using runtime::launcher::LocalJob;

constexpr uint64_t kJobFileBytesMax = 1 << 20;

struct TrainArguments {
  std::string job_file;
  std::vector<std::string> overrides;
  std::string out;
  std::string worker_program = "/proc/self/exe";
  bool quiet = false;
};

// Shows what the recorder hears.
class Display : public runtime::coordinator::JobObserver {
 public:
  Display(RunRecorder& recorder, uint64_t steps, uint64_t tokens_per_step, bool quiet)
      : recorder_(recorder),
        quiet_(quiet),
        terminal_(::isatty(STDOUT_FILENO) != 0),
        tokens_per_step_(tokens_per_step) {
    progress_.steps = steps;
  }

  void on_ready(base::Rank rank, const runtime::rpc::Ready& ready) override {
    if (rank == base::Rank(0) && !quiet_) {
      std::printf("worker 0: %s\n", ready.device.c_str());
      std::fflush(stdout);
    }
    recorder_.on_ready(rank, ready);
  }
  void on_start() override { recorder_.on_start(); }
  void on_step(const runtime::rpc::StepReport& report) override {
    recorder_.on_step(report);
    progress_.step = report.step.value();
    progress_.loss = report.loss;
    progress_.seconds_per_step = recorder_.seconds_per_step();
    progress_.tokens_per_s =
        static_cast<double>(tokens_per_step_) / std::max(progress_.seconds_per_step, 1e-9);
    show();
  }
  void on_evaluation(const runtime::rpc::EvaluationReport& report) override {
    recorder_.on_evaluation(report);
    progress_.val_loss = report.loss;
    show();
  }
  void on_finished(base::Rank rank, const runtime::rpc::Finished& finished) override {
    recorder_.on_finished(rank, finished);
  }
  void end_line() const {
    if (terminal_ && !quiet_) std::printf("\n");
  }

 private:
  // A terminal's line is rewritten each step; elsewhere about twenty lines tell the run.
  void show() {
    if (quiet_) return;
    const std::string line = runtime::launcher::format_progress(progress_);
    if (terminal_) {
      std::printf("\r\033[K%s", line.c_str());
    } else if (progress_.step == 1 || progress_.step == progress_.steps ||
               progress_.step % std::max<uint64_t>(1, progress_.steps / 20) == 0) {
      std::printf("%s\n", line.c_str());
    }
    std::fflush(stdout);
  }

  RunRecorder& recorder_;
  const bool quiet_;
  const bool terminal_;
  const uint64_t tokens_per_step_;
  runtime::launcher::Progress progress_;
};

std::string make_token() {
  unsigned char bytes[16] = {};
  CHECK_EQ(::getrandom(bytes, sizeof bytes, 0), static_cast<ssize_t>(sizeof bytes));
  std::string text;
  for (const unsigned char b : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    text += two;
  }
  return text;
}

// Everything that can be wrong with the input, before anything is written or started.
base::Result<JobConfig> check_input(const TrainArguments& arguments, base::FileSystem& files,
                                    std::string& toml) {
  ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                   base::read_file(files, arguments.job_file, kJobFileBytesMax));
  toml = base::as_text(bytes);
  JobConfig job;
  RETURN_IF_ERROR(runtime::job::load_job(toml, arguments.job_file, arguments.overrides, &job));
  RETURN_IF_ERROR(runtime::job::make_job_plan(job).status());
  RETURN_IF_ERROR(runtime::job::open_job_data(job).status());
  if (::access(arguments.worker_program.c_str(), X_OK) != 0) {
    return base::invalid_argument("cannot start worker program '" + arguments.worker_program + "'");
  }
  return job;
}

base::Status run_job(LocalJob& local, boost::asio::io_context& io) {
  boost::asio::signal_set signals(io, SIGINT, SIGTERM);
  signals.async_wait([&local](const boost::system::error_code& error, int) {
    if (!error) local.stop(base::cancelled("interrupted"));
  });
  base::Gate gate;
  std::optional<base::Status> status;
  const auto run = [](LocalJob& job, std::optional<base::Status>& out,
                      boost::asio::signal_set& wait) -> base::Task<void> {
    out = co_await job.run();
    wait.cancel();
  };
  CHECK(base::spawn(io.get_executor(), gate, run(local, status, signals)).is_ok());
  io.run();
  CHECK(status.has_value());
  return *status;
}

int train(const TrainArguments& arguments) {
  base::PosixFiles files;
  std::string toml;
  const base::Result<JobConfig> checked = check_input(arguments, files, toml);
  if (!checked.is_ok()) return report_wrong_input(checked.status());
  const JobConfig& job = *checked;

  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  runtime::transport_tcp::TcpNetwork network(io.get_executor(), clock);
  const uint64_t tokens_per_step =
      job.samples_per_step() * static_cast<uint64_t>(job.model.context);
  auto recorder = RunRecorder::open({.folder = arguments.out,
                                     .steps = job.run.steps,
                                     .tokens_per_step = tokens_per_step,
                                     .ranks = job.layout.ranks()},
                                    files, clock);
  if (!recorder.is_ok()) return report_wrong_input(recorder.status());
  Display display(**recorder, job.run.steps, tokens_per_step, arguments.quiet);

  runtime::launcher::LocalJobOptions options;
  options.coordinator = {.ranks = job.layout.ranks(),
                         .job_token = make_token(),
                         .job_toml = toml,
                         .job_source = arguments.job_file,
                         .overrides = arguments.overrides};
  options.listen.port = job.run.port;
  options.worker_program = arguments.worker_program;
  LocalJob local(options, network, clock, io.get_executor(), display);
  const base::Status status = run_job(local, io);
  display.end_line();
  const base::Status written = (*recorder)->finish(status);
  if (!status.is_ok()) return report_error(status);
  if (!written.is_ok()) return report_error(written.annotate("the run is done, but"));
  const auto& numbers = (*recorder)->numbers();
  std::printf("step %llu  loss %.6f  params %s\n", static_cast<unsigned long long>(numbers.steps),
              numbers.loss, runtime::coordinator::digest_text(numbers.params_digest).c_str());
  return kExitDone;
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
  command->add_option("--worker-program", arguments->worker_program,
                      "Program that is started for each worker");
  command->add_flag("--quiet", arguments->quiet, "Only the last line");
  command->footer(
      "Examples:\n"
      "  perdure train examples/tiny.toml\n"
      "  perdure train examples/kjv.toml --set layout.pipelines=2 --set layout.stages=2 --out "
      "runs/kjv\n"
      "\n"
      "The last line printed is: step N  loss L  params HEX");
  command->callback([arguments, &action] { action = [arguments] { return train(*arguments); }; });
}

}  // namespace perdure::apps
