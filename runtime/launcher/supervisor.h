#pragma once
// Supervisor: runs a job on this machine: the coordinator and one agent per node, each a process
// group of its own (a node is a process group: its workers are in it).
//
//   coordinator  dies by a signal or by accident  ──► started again, RestartBudget
//                exits with 0, 2 or 3             ──► that is how the job ended
//   agent        dies                             ──► the node is gone; start_node() brings it back
//
// Threads: the component's. When run() returns no process of the job is left.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/condition.h"
#include "base/gate.h"
#include "base/stop_token.h"
#include "runtime/agent/child_process.h"
#include "runtime/launcher/restart_budget.h"

namespace perdure::runtime::launcher {

inline constexpr int kJobDone = 0;
inline constexpr int kJobWrongInput = 2;
inline constexpr int kJobFailure = 3;

struct SupervisorOptions {
  std::string program;                             // of both
  std::vector<std::string> coordinator_arguments;  // with the subcommand
  // Of the node's agent; `--node N` is added.
  std::vector<std::string> agent_arguments;
  std::vector<std::pair<std::string, std::string>> environment;
  uint32_t nodes = 1;
  // Is a dead node expected back by itself? Asked when none is left.
  std::function<bool()> may_come_back;
  std::function<void(int pid)> on_exit;  // of any process that it started
  // Agents give their workers 5 s.
  base::Nanos leave_timeout = std::chrono::seconds(7);
};

struct JobEnd {
  int exit_code = kJobFailure;
  std::string why;  // "" when the coordinator has told the person itself
};

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, base::Clock& clock, const base::Executor& executor);

  // kInvalidArgument, kResourceExhausted: the coordinator or an agent cannot be started.
  base::Task<base::Result<JobEnd>> run();
  // Asks the coordinator to end the job (SIGTERM); the second time kills it.
  void interrupt();
  // Nothing when it runs.
  void start_node(uint32_t node);

 private:
  struct Child {
    std::unique_ptr<agent::ChildProcess> process;
    std::optional<agent::ChildExit> exit;  // of the newest one
    bool is_running() const { return process != nullptr && process->is_running(); }
  };

  base::Status start(Child& child, const std::vector<std::string>& arguments);
  base::Status start_agent(uint32_t node);
  std::optional<JobEnd> judge();
  base::Task<void> end_all();
  bool any_agent_runs() const;

  const SupervisorOptions options_;
  base::Clock& clock_;
  const base::Executor executor_;
  base::Condition changed_;
  RestartBudget budget_{10, std::chrono::minutes(1)};
  Child coordinator_;
  std::map<uint32_t, Child> agents_;
  uint32_t interrupts_ = 0;
  bool is_over_ = false;
};

}  // namespace perdure::runtime::launcher
