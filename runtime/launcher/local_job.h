#pragma once
// LocalJob: a whole job on this machine: the coordinator in this process, every worker a process of
// its own.
//
// Threads: the component's. `run` returns when all workers have ended.

#include <memory>
#include <string>
#include <vector>

#include "runtime/agent/child_process.h"
#include "runtime/coordinator/job_coordinator.h"

namespace perdure::runtime::launcher {

struct LocalJobOptions {
  coordinator::CoordinatorOptions coordinator;
  base::Address listen{"127.0.0.1", 0};
  std::string worker_program;  // started as: PROGRAM worker --coordinator H:P --worker N
};

// Names the environment variable that carries the job token to the workers (an argument would show
// in `ps`).
inline constexpr const char* kTokenVariable = "PERDURE_JOB_TOKEN";

class LocalJob {
 public:
  LocalJob(const LocalJobOptions& options, base::Network& network, base::Clock& clock,
           const base::Executor& executor, coordinator::JobObserver& observer);

  // kAlreadyExists: the port is taken. kInvalidArgument: the worker program cannot be started.
  // Otherwise as JobCoordinator::run. No worker is left when it returns.
  base::Task<base::Status> run();
  // Ends the job early; run() then returns `why`.
  void stop(base::Status why);

 private:
  base::Status start_workers(const base::Address& address);
  base::Task<void> await_workers();
  bool any_running() const;

  const LocalJobOptions options_;
  base::Network& network_;
  base::Clock& clock_;
  const base::Executor executor_;
  coordinator::JobObserver& observer_;
  std::unique_ptr<coordinator::JobCoordinator> coordinator_;
  std::vector<std::unique_ptr<agent::ChildProcess>> workers_;
  base::Condition ended_;
};

}  // namespace perdure::runtime::launcher
