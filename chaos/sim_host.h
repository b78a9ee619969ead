#pragma once
// SimHost: one simulated machine, with one process on it that can be killed, paused and restarted.

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/gate.h"
#include "base/task.h"
#include "base/trace.h"
#include "base/units.h"
#include "chaos/crash.h"
#include "chaos/sim_clock.h"
#include "chaos/sim_files.h"
#include "chaos/sim_network.h"

namespace perdure::chaos {

struct SimHostOptions {
  base::Nanos clock_offset{0};
  SimDiskOptions disk = {};
};

// The memory of the process under test. Destroyed when the host is killed, after its coroutines.
class SimProcess {
 public:
  virtual ~SimProcess() = default;
};

// Owned by the world; all calls come from its thread. Code under test sees executor() and the seams
// only.
class SimHost {
 public:
  using Program = std::function<std::unique_ptr<SimProcess>(SimHost&)>;

  // What a host needs of its world.
  struct Wiring {
    EventHeap& heap;
    const base::Nanos& now;
    SimNetwork& network;
    base::Trace& trace;
    std::vector<SimHost*>& ready;
    uint64_t seed;
  };
  SimHost(const Wiring& wiring, uint32_t index, std::string name, const SimHostOptions& options);
  ~SimHost();
  SimHost(const SimHost&) = delete;
  SimHost& operator=(const SimHost&) = delete;

  // Starts the program, now and after each restart().
  void boot(Program program);

  // Ends the process at once: no line of its code runs any more, except destructors, which reach
  // nobody. Not from inside the host's own code: that calls die().
  void kill(Crash crash);

  // A killed host starts its program again.
  void restart();

  // Code of the host itself, such as a fault point, ends the host: from now on it has no effect on
  // the world; it is killed as soon as it waits.
  void die(Crash crash);

  // A paused host keeps its connections and does nothing (SIGSTOP, a long garbage collection, a
  // frozen VM).
  void pause();
  void resume();

  // Runs a task of the test itself on this host. It dies with the process.
  void spawn(base::Task<void> task);

  base::Executor executor() { return context_->get_executor(); }
  base::Clock& clock() { return clock_; }
  base::Network& network() { return *network_; }
  SimFiles& files() { return files_; }

  const std::string& name() const { return name_; }
  uint32_t index() const { return index_; }
  bool is_alive() const { return is_alive_; }
  uint64_t incarnation() const { return incarnation_; }

  // From now on adds up what `now` says its turns take. For measurements: the world must not depend
  // on it.
  void meter(std::function<base::Nanos()> now) { meter_ = std::move(now); }
  base::Nanos metered() const { return metered_; }

  // For the world and its network: something was posted to this host; run it in this turn.
  void mark_ready();
  void run_ready();

 private:
  void start();

  const Wiring wiring_;
  const uint32_t index_;
  const std::string name_;
  SimClock clock_;
  SimFiles files_;
  std::unique_ptr<base::Network> network_;  // this host's door to the world's network
  Program program_;
  bool is_alive_ = false;
  bool is_paused_ = false;
  bool is_ready_ = false;
  bool is_running_ = false;
  uint64_t incarnation_ = 0;
  std::function<base::Nanos()> meter_;
  base::Nanos metered_{0};

  // Of one incarnation. The context is destroyed first: it takes the coroutines with it.
  std::optional<base::Gate> test_gate_;
  std::unique_ptr<boost::asio::io_context> context_;
  // Without it a context that runs out of work stops for good.
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> work_;
  std::unique_ptr<SimProcess> process_;
};

}  // namespace perdure::chaos
