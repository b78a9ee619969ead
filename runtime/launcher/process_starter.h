#pragma once
// ProcessStarter: an agent's workers as child processes of this machine, and the memory in which
// their snapshots and reports outlive them.

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/posix_shared_memory.h"
#include "base/task.h"
#include "runtime/agent/worker_starter.h"

namespace perdure::runtime::launcher {

// Name environment variables (an argument would show in `ps`).
inline constexpr const char* kSecretVariable = "PERDURE_JOB_SECRET";

// The environment of every process of a job. UCX would print a stack trace of its own over ours,
// and warnings about cancelled messages.
std::vector<std::pair<std::string, std::string>> job_environment(const std::string& secret);

struct ProcessStarterOptions {
  // Started as: PROGRAM worker --agent H:P --worker N --incarnation I --slot P --slot P --reports P
  // [--other-slot P]...
  std::string program;
  std::string secret;
};

// The executor's loop outlives it and the processes. The memory goes with it.
class ProcessStarter final : public agent::WorkerStarter {
 public:
  ProcessStarter(const ProcessStarterOptions& options, const base::Executor& executor)
      : options_(options), executor_(executor) {}

  base::Result<std::unique_ptr<agent::WorkerProcess>> start(
      const agent::WorkerStart& start,
      base::UniqueFunction<void(std::string how)> on_exit) override;

 private:
  struct Memory {
    std::array<base::SharedMemory, 2> slots;
    base::SharedMemory reports;
  };
  base::Result<Memory*> memory_of(base::WorkerId worker);

  const ProcessStarterOptions options_;
  std::map<base::WorkerId, Memory> memory_;
  const base::Executor executor_;
};

}  // namespace perdure::runtime::launcher
