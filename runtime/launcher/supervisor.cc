#include "runtime/launcher/supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"

namespace perdure::runtime::launcher {
namespace {

using base::Result;
using base::Status;
using base::Task;

constexpr base::Nanos kReapTimeout = std::chrono::seconds(5);

bool is_verdict(const agent::ChildExit& exit) {
  return exit.signal == 0 &&
         (exit.code == kJobDone || exit.code == kJobWrongInput || exit.code == kJobFailure);
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options, base::Clock& clock,
                       const base::Executor& executor)
    : options_(std::move(options)), clock_(clock), executor_(executor) {}

Task<Result<JobEnd>> Supervisor::run() {
  Status started = start(coordinator_, options_.coordinator_arguments);
  for (uint32_t node = 0; node < options_.nodes && started.is_ok(); ++node) {
    started = start_agent(node);
  }
  std::optional<JobEnd> end;
  while (started.is_ok()) {
    end = judge();
    if (end.has_value()) break;
    started = co_await changed_.wait();
  }
  co_await end_all();
  CO_RETURN_IF_ERROR(started);
  co_return *end;
}

Status Supervisor::start(Child& child, const std::vector<std::string>& arguments) {
  child.exit.reset();
  const agent::ChildCommand command{.program = options_.program,
                                    .arguments = arguments,
                                    .environment = options_.environment,
                                    .group = agent::ProcessGroup::kOwn};
  ASSIGN_OR_RETURN(child.process, agent::ChildProcess::start(
                                      executor_, command, [this, &child](agent::ChildExit exit) {
                                        child.exit = exit;
                                        if (options_.on_exit)
                                          options_.on_exit(child.process->pid());
                                        changed_.notify_all();
                                      }));
  return Status::ok();
}

Status Supervisor::start_agent(uint32_t node) {
  std::vector<std::string> arguments = options_.agent_arguments;
  arguments.insert(arguments.end(), {"--node", std::to_string(node)});
  return start(agents_[node], arguments);
}

void Supervisor::start_node(uint32_t node) {
  if (is_over_ || node >= options_.nodes || agents_[node].is_running()) return;
  const Status started = start_agent(node);
  if (!started.is_ok()) {
    LOG_ERROR("launcher", "node not started", KV("node", node), KV("why", started));
  }
}

// How the job ended, if it did. Starts the coordinator again when it died.
std::optional<JobEnd> Supervisor::judge() {
  if (coordinator_.exit.has_value()) {
    const agent::ChildExit exit = *coordinator_.exit;
    // It tells the person why, unless it was interrupted.
    if (is_verdict(exit) && (interrupts_ == 0 || exit.code != kJobFailure))
      return JobEnd{.exit_code = exit.code, .why = {}};
    if (interrupts_ > 0) return JobEnd{.exit_code = kJobFailure, .why = "interrupted"};
    if (!budget_.take(clock_.now())) {
      return JobEnd{.exit_code = kJobFailure,
                    .why = "the coordinator dies again and again: " + exit.to_string()};
    }
    LOG_WARNING("launcher", "coordinator died: starting it again", KV("how", exit.to_string()));
    const Status started = start(coordinator_, options_.coordinator_arguments);
    if (!started.is_ok()) return JobEnd{.exit_code = kJobFailure, .why = started.message()};
  }
  if (!any_agent_runs() && !(options_.may_come_back && options_.may_come_back())) {
    // The coordinator dismisses its agents before it ends itself.
    if (std::any_of(agents_.begin(), agents_.end(), [](const auto& entry) {
          return entry.second.exit.has_value() && is_verdict(*entry.second.exit);
        })) {
      return std::nullopt;
    }
    if (interrupts_ > 0) return JobEnd{.exit_code = kJobFailure, .why = "interrupted"};
    std::string how;
    for (const auto& [node, child] : agents_) {
      if (child.exit.has_value()) how = child.exit->to_string();
    }
    return JobEnd{.exit_code = kJobFailure, .why = "no node is left: the last ended by " + how};
  }
  return std::nullopt;
}

bool Supervisor::any_agent_runs() const {
  return std::any_of(agents_.begin(), agents_.end(),
                     [](const auto& entry) { return entry.second.is_running(); });
}

void Supervisor::interrupt() {
  ++interrupts_;
  if (coordinator_.is_running()) {
    coordinator_.process->kill(interrupts_ == 1 ? SIGTERM : SIGKILL);
  }
  changed_.notify_all();
}

Task<void> Supervisor::end_all() {
  is_over_ = true;
  if (coordinator_.is_running()) coordinator_.process->kill(SIGTERM);
  // One that has been dismissed is leaving already; another would look for a coordinator for ever.
  for (auto& [node, child] : agents_) {
    // Not to its group: the workers are the agent's to end.
    if (child.is_running()) ::kill(child.process->pid(), SIGTERM);
  }
  const base::Nanos deadline = clock_.now() + options_.leave_timeout;
  while (any_agent_runs() || coordinator_.is_running()) {
    if (!(co_await changed_.wait(clock_, deadline)).is_ok()) break;
  }
  if (coordinator_.is_running()) coordinator_.process->kill(SIGKILL);
  for (auto& [node, child] : agents_) {
    if (!child.is_running()) continue;
    LOG_WARNING("launcher", "killing a node that does not leave", KV("node", node));
    child.process->kill(SIGKILL);
  }
  const base::Nanos reaped = clock_.now() + kReapTimeout;
  while (any_agent_runs() || coordinator_.is_running()) {
    if (!(co_await changed_.wait(clock_, reaped)).is_ok()) break;
  }
}

}  // namespace perdure::runtime::launcher
