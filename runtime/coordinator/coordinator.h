#pragma once
// Coordinator: the control side of one job. It keeps the table of nodes, feeds what it hears to
// recovery::EpochMachine and carries out what that orders. It is not on the step path: a running
// epoch needs nothing from it, and it may be killed and started again at any moment.
//
//   agents ══ sessions ══► MemberTable (leases) ──┐
//                     └──► worker messages ───────┴─► EpochMachine ──► actions
//                                    journal first, then messages ◄──────┘
//
// What it must remember is in its journal; what the workers do is told by the agents when they join
// again.
//
// Threads: the component's. `run` returns when the job is over.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/gate.h"
#include "base/network.h"
#include "base/random.h"
#include "recovery/epoch_machine.h"
#include "runtime/coordinator/job_observer.h"
#include "runtime/coordinator/journal.h"
#include "runtime/membership/member_table.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/rpc/handshake.h"

namespace perdure::runtime::coordinator {

struct CoordinatorOptions {
  std::string job_id;
  std::string secret;
  protocol::JobText job;
  uint32_t nodes = 1;  // spare ones included
  uint32_t workers_per_node = 1;
  recovery::MachineOptions machine;
  membership::LeaseOptions lease;
  // Measures decisions; empty: the component's clock, which stands still in simulated turns.
  std::function<base::Nanos()> work_clock;
  base::Nanos dismiss_timeout = std::chrono::seconds(5);
  // A worker's program that ends by itself so often before it was ever ready ends the job.
  uint32_t early_exits_max = 3;
  uint64_t nonce_seed = 0;
};

class Coordinator {
 public:
  Coordinator(const CoordinatorOptions& options, std::unique_ptr<base::Listener> listener,
              Journal& journal, base::Clock& clock, const base::Executor& executor,
              JobObserver& observer);

  // Ok when every member finished. Otherwise why the job ended. Errors of the journal end the job,
  // too: a decision that cannot be written down must not act.
  base::Task<base::Status> run();
  // Ends the job from outside (a signal); run() then gives `why`.
  void stop(base::Status why);

  const recovery::EpochMachine& machine() const { return machine_; }
  const membership::MemberTable& nodes() const { return table_; }
  std::string status_json() const;
  // With agents, since the process began.
  struct Traffic {
    uint64_t frames_in = 0;
    uint64_t frames_out = 0;
    uint64_t bytes_out = 0;
  };
  const Traffic& traffic() const { return traffic_; }
  // From the last state told to the plan, of the newest plan.
  base::Nanos decision_time() const { return decision_time_; }

 private:
  // One connection of an agent.
  struct Session {
    Session(size_t queue_max, base::Clock& clock) : outgoing(queue_max, clock) {}
    base::NodeId node;
    base::Incarnation incarnation;
    std::unique_ptr<rpc::MessageChannel> channel;
    base::TaskQueue<rpc::Frame> outgoing;
  };
  struct Node {
    Session* session = nullptr;                              // the newest, while it lives
    std::map<base::WorkerId, protocol::WorkerInfo> workers;  // that are up
    base::Step step;                                         // of its last beat
    uint32_t early_exits = 0;
  };

  // coordinator.cc: life
  base::Status recall();
  base::Task<void> accept_loop();
  base::Task<void> serve(std::unique_ptr<base::Channel> channel);
  base::Task<void> serve_observer(rpc::MessageChannel& channel);
  base::Task<void> tick_loop();
  base::Task<void> dismiss_all();
  void tick();
  void end(base::Status status);

  // coordinator_nodes.cc: agents and what they say
  base::Task<void> serve_agent(std::shared_ptr<Session> session, rpc::PeerIdentity peer);
  base::Task<base::Status> welcome(Session& session, rpc::PeerIdentity peer);
  base::Task<base::Status> follow(Session& session);
  base::Task<void> send_loop(std::shared_ptr<Session> session);
  base::Status handle(Session& session, const rpc::Frame& frame);
  bool is_home(base::NodeId node, base::WorkerId worker) const;
  void worker_up(base::NodeId node, const protocol::WorkerInfo& info);
  void worker_down(base::NodeId node, const protocol::WorkerDown& down);
  void lose_node(base::NodeId node, const std::string& why);
  void tell(Session& session, rpc::Frame frame);
  rpc::Stamp stamp() const;

  // coordinator_workers.cc: what workers say, what the machine orders
  void hear(const protocol::WorkerMessage& message);
  base::Status hear_report(const protocol::WorkerMessage& message);
  void on_step(const recovery::Speaker& from, const protocol::StepReport& report);
  bool are_reports_missing(base::Step step);
  void ask_reports();
  void feed(const recovery::MachineEvent& event);
  std::vector<recovery::MachineAction> ask_machine(const recovery::MachineEvent& event);
  void carry_out(const recovery::EnterPhase& enter);
  void carry_out(const recovery::Send& send);
  void carry_out(const recovery::RecordDecided& decided);
  void carry_out(const recovery::RecordActive& active);
  void carry_out(const recovery::EndMember& ended);
  void carry_out(const recovery::Explain& explain);
  void carry_out(const recovery::EndJob& job);
  uint32_t budget_ms() const;
  // What a message says to the workers of one node.
  using PayloadOf = std::function<rpc::Payload(const std::vector<protocol::WorkerTarget>&)>;
  void send_to(const recovery::Send& send, protocol::MessageType type, const PayloadOf& payload_of);
  void send_prepare(const recovery::Send& send, const recovery::OrderPrepare& order);
  void send_load(const recovery::Send& send, const recovery::OrderLoad& order);
  bool record(RecordKind kind, rpc::Payload payload);
  void record_progress();

  const CoordinatorOptions options_;
  std::unique_ptr<base::Listener> listener_;
  Journal& journal_;
  base::Clock& clock_;
  const base::Executor executor_;
  JobObserver& observer_;
  base::SeededRandom nonces_;
  base::Gate gate_;
  base::Condition changed_;
  recovery::EpochMachine machine_;
  membership::MemberTable table_;
  std::map<base::NodeId, Node> nodes_;
  std::vector<std::shared_ptr<Session>> sessions_;
  std::vector<rpc::MessageChannel*> strangers_;  // in their handshake; each in the frame of serve()
  base::Incarnation life_;                       // of this process, from the journal
  std::optional<base::Status> end_;
  base::Step progress_;  // newest that is in the journal
  base::Nanos progress_at_{0};
  base::Nanos asked_at_{0};
  base::Nanos ticked_at_{0};
  bool end_waits_ = false;  // for reports of steps that were not heard of
  uint32_t end_asked_ = 0;
  Traffic traffic_;
  base::Nanos decision_time_{0};
  base::Nanos left_last_{0};   // when the last engine had left the epoch before, as told
  base::Epoch first_step_of_;  // the newest epoch of which a step was seen
};

}  // namespace perdure::runtime::coordinator
