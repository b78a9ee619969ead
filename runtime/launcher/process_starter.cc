#include "runtime/launcher/process_starter.h"

#include <csignal>

#include "runtime/agent/child_process.h"

namespace perdure::runtime::launcher {
namespace {

class StartedWorker final : public agent::WorkerProcess {
 public:
  explicit StartedWorker(std::unique_ptr<agent::ChildProcess> child) : child_(std::move(child)) {}
  uint64_t pid() const override { return static_cast<uint64_t>(child_->pid()); }
  bool is_running() const override { return child_->is_running(); }
  void kill() override { child_->kill(SIGKILL); }

 private:
  std::unique_ptr<agent::ChildProcess> child_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> job_environment(const std::string& secret) {
  return {{kSecretVariable, secret}, {"UCX_HANDLE_ERRORS", "none"}, {"UCX_LOG_LEVEL", "error"}};
}

base::Result<std::unique_ptr<agent::WorkerProcess>> ProcessStarter::start(
    const agent::WorkerStart& start, base::UniqueFunction<void(std::string how)> on_exit) {
  const agent::ChildCommand command{
      .program = options_.program,
      .arguments = {"worker", "--agent", start.agent.to_string(), "--worker",
                    std::to_string(start.worker.value()), "--incarnation",
                    std::to_string(start.incarnation.value())},
      .environment = job_environment(options_.secret)};
  ASSIGN_OR_RETURN(
      auto child,
      agent::ChildProcess::start(executor_, command,
                                 [exit = std::move(on_exit)](const agent::ChildExit& how) mutable {
                                   exit(how.to_string());
                                 }));
  return std::unique_ptr<agent::WorkerProcess>(std::make_unique<StartedWorker>(std::move(child)));
}

}  // namespace perdure::runtime::launcher
