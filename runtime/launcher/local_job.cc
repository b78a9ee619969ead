#include "runtime/launcher/local_job.h"

#include <csignal>

#include "base/log.h"

namespace perdure::runtime::launcher {
namespace {

// A worker that was told to leave, or whose job has failed, gets this long before it is killed.
constexpr base::Nanos kLeaveTimeout = std::chrono::seconds(5);

}  // namespace

LocalJob::LocalJob(const LocalJobOptions& options, base::Network& network, base::Clock& clock,
                   const base::Executor& executor, coordinator::JobObserver& observer)
    : options_(options),
      network_(network),
      clock_(clock),
      executor_(executor),
      observer_(observer) {}

base::Task<base::Status> LocalJob::run() {
  CO_ASSIGN_OR_RETURN(auto listener, network_.listen(options_.listen));
  const base::Address address = listener->address();
  coordinator_ = std::make_unique<coordinator::JobCoordinator>(
      options_.coordinator, std::move(listener), clock_, executor_, observer_);
  CO_RETURN_IF_ERROR(start_workers(address));
  const base::Status status = co_await coordinator_->run();
  if (!status.is_ok()) {
    for (auto& worker : workers_) worker->kill(SIGKILL);
  }
  co_await await_workers();
  co_return status;
}

void LocalJob::stop(base::Status why) {
  if (coordinator_ != nullptr) coordinator_->stop(std::move(why));
}

base::Status LocalJob::start_workers(const base::Address& address) {
  for (uint32_t w = 0; w < options_.coordinator.ranks; ++w) {
    const agent::ChildCommand command{
        .program = options_.worker_program,
        .arguments = {"worker", "--coordinator", address.to_string(), "--worker",
                      std::to_string(w)},
        .environment = {{kTokenVariable, options_.coordinator.job_token},
                        // UCX would print a stack trace of its own over ours, and warnings about
                        // cancelled messages.
                        {"UCX_HANDLE_ERRORS", "none"},
                        {"UCX_LOG_LEVEL", "error"}}};
    ASSIGN_OR_RETURN(
        auto child,
        agent::ChildProcess::start(executor_, command, [this, w](agent::ChildExit exit) {
          const auto end =
              exit.signal == 0 ? coordinator::WorkerEnd::kExited : coordinator::WorkerEnd::kKilled;
          coordinator_->worker_ended(base::WorkerId(w), end, exit.to_string());
          ended_.notify_all();
        }));
    workers_.push_back(std::move(child));
  }
  return base::Status::ok();
}

bool LocalJob::any_running() const {
  for (const auto& worker : workers_) {
    if (worker->is_running()) return true;
  }
  return false;
}

base::Task<void> LocalJob::await_workers() {
  const base::Nanos deadline = clock_.now() + kLeaveTimeout;
  while (any_running()) {
    const base::Status waited = co_await ended_.wait(clock_, deadline);
    if (waited.is_ok()) continue;
    LOG_WARNING("launcher", "killing workers that do not leave");
    for (auto& worker : workers_) worker->kill(SIGKILL);
    while (any_running()) co_await ended_.wait();
  }
}

}  // namespace perdure::runtime::launcher
