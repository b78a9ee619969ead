#pragma once
// WorkerSet: the worker processes of one node and the connections to them.
//
//   down ── start ──► starting ── handshake, WorkerUp ──► up ── exit, silence, kill ──► down
//    ▲                    │ no WorkerUp in time                                          │
//    └────────────────────┴──────────────── back-off (RestartPolicy) ◄───────────────────┘
//
// A stopped process (SIGSTOP) keeps its connection and says nothing: it is found by its missing
// beats, counted out after a lease, and killed after several. Owns the processes. Threads: the
// component's. Its owner calls stop(); the listener and all services outlive it.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/gate.h"
#include "base/random.h"
#include "base/stop_token.h"
#include "runtime/agent/restart_policy.h"
#include "runtime/agent/worker_starter.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/rpc/message_channel.h"

namespace perdure::runtime::agent {

// Called on the component's thread; must not call back into the set.
class WorkerSetListener {
 public:
  virtual ~WorkerSetListener() = default;
  virtual void on_worker_up(const protocol::WorkerInfo& info) = 0;
  // Its process has ended, or it is silent: then on_worker_up follows when it speaks again.
  virtual void on_worker_down(const protocol::WorkerDown& down) = 0;
  // An error ends the worker.
  virtual base::Status on_worker_message(protocol::WorkerMessage message) = 0;
  virtual void on_worker_step(base::Step step) = 0;
};

struct WorkerSetOptions {
  std::string secret;
  base::Address listen{"127.0.0.1", 0};
  RestartOptions restarts;
  base::Nanos start_timeout = std::chrono::seconds(60);  // from its start to WorkerUp
};

struct AgentServices {
  base::Network& network;
  base::Clock& clock;
  base::Executor executor;
  WorkerStarter& starter;
};

class WorkerSet {
 public:
  WorkerSet(const WorkerSetOptions& options, const AgentServices& services,
            WorkerSetListener& listener, base::SeededRandom& nonces);

  // Lets workers connect. The errors of Network::listen.
  base::Status listen();
  // Starts the workers that it names and that do not run, ends those that it does not name.
  void apply(const protocol::NodeWelcome& welcome);

  std::vector<protocol::WorkerInfo> up() const;  // ascending
  base::Step step() const;                       // newest that any of them committed

  // To those targets that are up in that very incarnation.
  void send(const protocol::ToWorkers& message, const rpc::Stamp& stamp);
  void end(const protocol::WorkerTarget& target, const std::string& why);
  // To all that are up, in their own epoch.
  void fence(const std::string& why);
  // Ends the silent ones. Called at least once in a quarter of the lease.
  void tick();
  // Starts all that are down, also those that had used up their restarts.
  void revive();

  // Asks all to leave, waits, kills the rest. Nothing is started any more.
  base::Task<void> leave(protocol::Dismiss dismiss, base::Nanos timeout);
  void kill_all();
  // kill_all, and no task is left.
  base::Task<void> stop();

 private:
  struct Link;
  struct Slot {
    explicit Slot(const RestartOptions& restart_options) : restarts(restart_options) {}
    bool is_up() const { return link != nullptr; }
    bool is_running() const { return process != nullptr && process->is_running(); }

    protocol::WorkerInfo info;  // of the newest process
    std::unique_ptr<WorkerProcess> process;
    std::shared_ptr<Link> link;  // shared with the tasks that serve it; set while the worker is up
    RestartPolicy restarts;
    base::Nanos started_at{0};
    base::Nanos heard_last{0};  // or when its connection was lost
    base::Step step;
    bool is_wanted = true;
    bool was_up = false;
    bool told_down = true;
    bool is_silent = false;  // counted out, but its process is still there
    bool restart_pending = false;
  };

  base::Task<void> accept_loop();
  base::Task<void> serve(std::unique_ptr<base::Channel> channel);
  base::Task<base::Status> admit(std::shared_ptr<Link> link);
  base::Task<base::Status> follow(std::shared_ptr<Link> link);
  base::Task<void> send_loop(std::shared_ptr<Link> link);
  base::Task<void> settle_exit(base::WorkerId worker, base::Incarnation incarnation,
                               std::string how);
  base::Task<void> restart_after(base::WorkerId worker, base::Incarnation incarnation,
                                 base::Nanos delay);
  base::Status take(Slot& slot, rpc::Frame frame);
  void start(base::WorkerId worker, Slot& slot);
  void on_exit(base::WorkerId worker, base::Incarnation incarnation, const std::string& how);
  void give_up(Slot& slot, const std::string& why);
  void report_down(Slot& slot, const std::string& how);
  void tell_down(Slot& slot, const std::string& how);
  void schedule_restart(Slot& slot);
  std::string why_silent(const Slot& slot, base::Nanos now) const;
  void put(Slot& slot, rpc::Frame frame);
  Slot* find(base::WorkerId worker, base::Incarnation incarnation);
  bool any_running() const;
  void spawn(base::Task<void> task);

  const WorkerSetOptions options_;
  const AgentServices services_;
  WorkerSetListener& listener_;
  base::SeededRandom& nonces_;
  base::Gate gate_;
  base::StopSource stop_;
  base::Condition changed_;  // a process or a connection ended
  std::unique_ptr<base::Listener> socket_;
  std::set<Link*> links_;  // open, also of those that are not let in yet
  std::map<base::WorkerId, Slot> slots_;
  base::Incarnation node_incarnation_;
  protocol::WorkerJob job_;
  uint64_t start_count_ = 0;
  base::Nanos ticked_last_{-1};
  bool is_leaving_ = false;
};

}  // namespace perdure::runtime::agent
