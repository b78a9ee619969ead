#pragma once
// ChildProcess: a worker process as its agent sees it. It dies with its parent (PR_SET_PDEATHSIG);
// its end is told by its pidfd, within milliseconds and without a signal handler.
//
// Threads: the component's. The executor's loop outlives the object.

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/task.h"
#include "base/unique_function.h"

namespace perdure::runtime::agent {

// Signals of kill() reach the child, or all of the group that it leads: a group of its own also
// keeps a terminal's Ctrl-C from it.
enum class ProcessGroup : uint8_t { kShared, kOwn };

struct ChildCommand {
  std::string program;                                           // a path; no search
  std::vector<std::string> arguments;                            // without the program's own name
  std::vector<std::pair<std::string, std::string>> environment;  // added to this process's
  ProcessGroup group = ProcessGroup::kShared;
};

// How a process ended.
struct ChildExit {
  int code = 0;                   // exit code, when signal is 0
  int signal = 0;                 // the signal that ended it
  std::string to_string() const;  // "exit code 3", "signal 9 (Killed)"
};

class ChildProcess {
 public:
  // kInvalidArgument when the program cannot be executed, kResourceExhausted when no process can be
  // made. `on_exit` runs once, on the executor's thread.
  static base::Result<std::unique_ptr<ChildProcess>> start(
      const base::Executor& executor, const ChildCommand& command,
      base::UniqueFunction<void(ChildExit)> on_exit);
  virtual ~ChildProcess() =
      default;  // kills (SIGKILL) and reaps a child that still runs; on_exit is not called

  virtual pid_t pid() const = 0;
  virtual bool is_running() const = 0;
  virtual void kill(int signal) = 0;  // nothing when it has ended
};

}  // namespace perdure::runtime::agent
