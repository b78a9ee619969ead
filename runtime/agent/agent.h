#pragma once
// Agent: what runs once per node. It keeps the node's workers running, passes their messages on,
// and holds the node's lease.
//
//   coordinator ◄── one connection, made anew for ever ──► Agent ◄── WorkerSet ──► workers
//
// While the coordinator is away the workers train on; what they say waits in the Outbox. Only when
// the lease is over and no step is committed either, the workers are fenced: they leave their
// epoch and keep their state (membership/lease_keeper.h says why that is safe).
//
// Threads: the component's. `run` returns when the node is dismissed, when its lease has been over
// for long, or after stop(); no worker is left then.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/gate.h"
#include "base/random.h"
#include "base/stop_token.h"
#include "runtime/agent/outbox.h"
#include "runtime/agent/worker_set.h"
#include "runtime/membership/lease_keeper.h"
#include "runtime/rpc/message_channel.h"

namespace perdure::runtime::agent {

struct AgentOptions {
  base::NodeId node;
  uint64_t pid = 0;
  std::string secret;
  base::Address listen{"127.0.0.1", 0};  // for workers
  uint32_t worker_restarts = 3;          // in a row
  base::Nanos worker_start_timeout = std::chrono::seconds(60);
  base::Nanos end_after = std::chrono::minutes(10);  // without a word from a coordinator
  base::Nanos leave_timeout = std::chrono::seconds(5);
  uint64_t seed = 1;  // of nonces and back-off
};

// Where the coordinator is now; asked before each try, because a restarted one may have moved.
using FindCoordinator = std::function<base::Result<base::Address>()>;

class Agent final : private WorkerSetListener {
 public:
  // The services outlive the agent.
  Agent(const AgentOptions& options, const AgentServices& services, FindCoordinator find);
  ~Agent() override;

  // Ok: dismissed, the job is done. kAborted: this node has been replaced or was out of reach for
  // too long. Errors of Network::listen. Else the error that it was dismissed with.
  base::Task<base::Status> run();
  // Kills the workers; run() then returns `why`. Any state, any number of times.
  void stop(base::Status why);
  // Starts the workers that are down, also those that had used up their restarts.
  void revive() { workers_.revive(); }

  std::vector<protocol::WorkerInfo> workers() const { return workers_.up(); }
  base::Incarnation incarnation() const { return incarnation_; }

 private:
  struct Link;

  void on_worker_up(const protocol::WorkerInfo& info) override;
  void on_worker_down(const protocol::WorkerDown& down) override;
  base::Status on_worker_message(protocol::WorkerMessage message) override;
  void on_worker_step(base::Step step) override;

  base::Task<void> connect_loop();
  base::Task<base::Status> session();
  base::Task<base::Status> join(std::shared_ptr<Link> link);
  base::Task<base::Status> follow(std::shared_ptr<Link> link);
  base::Task<void> send_loop(std::shared_ptr<Link> link);
  base::Task<void> tick_loop();
  base::Status handle(const rpc::Frame& frame);
  void on_welcome(const protocol::NodeWelcome& welcome, base::Nanos asked_at);
  void on_ack(const protocol::BeatAck& ack);
  void on_dismiss(const protocol::Dismiss& dismiss);
  void tick();
  void watch_lease(base::Nanos now);
  void finish(base::Status outcome);
  rpc::Stamp stamp() const;
  protocol::NodeJoin make_join() const;
  rpc::Frame next_beat();
  base::Nanos back_off(uint32_t tries);

  const AgentOptions options_;
  const AgentServices services_;
  const FindCoordinator find_;
  base::SeededRandom random_;
  base::Gate gate_;
  base::StopSource stop_;
  base::Condition changed_;     // run() looks again
  base::Condition wake_;        // the sender of the session looks again
  base::Condition link_quiet_;  // the sender of a session has ended
  WorkerSet workers_;
  Outbox outbox_;
  std::shared_ptr<Link> link_;  // of the session; shared with its sender
  std::optional<membership::LeaseKeeper> lease_;
  base::Nanos lease_time_{0};
  base::Nanos beat_time_ = std::chrono::milliseconds(250);
  std::map<uint64_t, base::Nanos> beats_;  // sent and not answered: sequence, when
  uint64_t beat_last_ = 0;
  base::Nanos acked_last_{0};
  bool is_fenced_ = false;  // in this silence
  uint64_t born_ = 0;       // NodeJoin::born
  base::Incarnation incarnation_;
  base::Epoch epoch_;  // newest that was heard of
  std::string job_id_;
  std::optional<base::Status> outcome_;
  std::optional<protocol::Dismiss> dismiss_;  // when workers may leave by themselves
};

}  // namespace perdure::runtime::agent
