#pragma once
// Seam: how an agent starts the processes of its workers. Real: child processes
// (runtime/launcher/process_starter); in simulation: objects on the same host.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/network.h"
#include "base/status.h"
#include "base/unique_function.h"

namespace perdure::runtime::agent {

struct WorkerStart {
  base::WorkerId worker;
  base::Incarnation incarnation;             // to be told to the agent in the handshake
  base::Address agent;                       // where the agent listens for its workers
  std::vector<base::WorkerId> node_workers;  // all of this node, this one too
};

// A started process. Destroying it kills it (SIGKILL) and reaps it; on_exit is then not called.
class WorkerProcess {
 public:
  virtual ~WorkerProcess() = default;
  virtual uint64_t pid() const = 0;
  virtual bool is_running() const = 0;
  virtual void kill() = 0;  // SIGKILL; on_exit follows
};

class WorkerStarter {
 public:
  virtual ~WorkerStarter() = default;
  // `on_exit` is called once, later, on the component's thread, with how it ended.
  // kInvalidArgument: cannot be started; kResourceExhausted.
  virtual base::Result<std::unique_ptr<WorkerProcess>> start(
      const WorkerStart& start, base::UniqueFunction<void(std::string how)> on_exit) = 0;
};

}  // namespace perdure::runtime::agent
