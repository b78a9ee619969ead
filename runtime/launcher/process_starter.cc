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

base::Result<ProcessStarter::Memory*> ProcessStarter::memory_of(base::WorkerId worker) {
  const auto found = memory_.find(worker);
  if (found != memory_.end()) return &found->second;
  const std::string name = "perdure.worker" + std::to_string(worker.value());
  Memory memory;
  for (size_t i = 0; i < memory.slots.size(); ++i) {
    ASSIGN_OR_RETURN(memory.slots[i], base::SharedMemory::make(name + ".slot" + std::to_string(i)));
  }
  ASSIGN_OR_RETURN(memory.reports, base::SharedMemory::make(name + ".reports"));
  return &memory_.emplace(worker, std::move(memory)).first->second;
}

base::Result<std::unique_ptr<agent::WorkerProcess>> ProcessStarter::start(
    const agent::WorkerStart& start, base::UniqueFunction<void(std::string how)> on_exit) {
  agent::ChildCommand command{
      .program = options_.program,
      .arguments = {"worker", "--agent", start.agent.to_string(), "--worker",
                    std::to_string(start.worker.value()), "--incarnation",
                    std::to_string(start.incarnation.value())},
      .environment = job_environment(options_.secret)};
  const auto add = [&command](const char* name, const base::SharedMemory& memory) {
    command.arguments.emplace_back(name);
    command.arguments.push_back(memory.path());
  };
  ASSIGN_OR_RETURN(const Memory* own, memory_of(start.worker));
  for (const base::SharedMemory& slot : own->slots) add("--slot", slot);
  add("--reports", own->reports);
  for (const base::WorkerId other : start.node_workers) {
    if (other == start.worker) continue;
    ASSIGN_OR_RETURN(const Memory* memory, memory_of(other));
    for (const base::SharedMemory& slot : memory->slots) add("--other-slot", slot);
  }
  ASSIGN_OR_RETURN(
      auto child,
      agent::ChildProcess::start(executor_, command,
                                 [exit = std::move(on_exit)](const agent::ChildExit& how) mutable {
                                   exit(how.to_string());
                                 }));
  return std::unique_ptr<agent::WorkerProcess>(std::make_unique<StartedWorker>(std::move(child)));
}

}  // namespace perdure::runtime::launcher
