#pragma once
// The real Coordinator on a simulated host, agents whose workers do as they are told, and strangers
// that a test plays by hand.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/condition.h"
#include "base/gate.h"
#include "base/hash.h"
#include "chaos/sim_world.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/protocol/epoch_messages.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/protocol/report_messages.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::coordinator {

using namespace base::literals;
using protocol::MessageType;

inline constexpr uint16_t kPort = 7;
inline constexpr const char* kSecret = "secret of the job";

// Keeps all that it is told; outlives the coordinator's process.
class Record final : public JobObserver {
 public:
  void on_event(const base::Event& event) override { events.push_back(event); }
  void on_prepared(base::Rank rank, const protocol::Prepared&) override {
    prepared.push_back(rank);
  }
  void on_active(const recovery::EpochPlan& plan) override { plans.push_back(plan); }
  StepNews on_step(const protocol::StepReport& report) override;
  void on_evaluation(const protocol::EvaluationReport& r) override { evaluations.push_back(r); }
  void on_finished(base::Rank rank, const protocol::Finished&) override {
    finished.push_back(rank);
  }
  base::Step steps_known() const override { return base::Step(steps.size()); }
  size_t count(const std::string& kind) const;

  std::vector<base::Event> events;
  std::vector<base::Rank> prepared;
  std::vector<recovery::EpochPlan> plans;
  std::vector<protocol::StepReport> steps;
  std::vector<protocol::EvaluationReport> evaluations;
  std::vector<base::Rank> finished;
};

// A journal in the test's memory that can refuse, or take its host with it.
struct JournalStage {
  std::vector<JournalRecord> records;
  std::optional<size_t> refuses_at;   // this append (from 0) fails
  std::optional<size_t> dies_before;  // the host dies instead of this append
  std::optional<size_t> dies_after;   // the host dies when this append is durable
  base::Status read_error;
  size_t appends = 0;
};

// A node, its agent and its workers; lives on when the agent's process dies.
struct NodeStage {
  struct WorkerBody {
    protocol::WorkerInfo info;
    recovery::StateReport state;
    std::optional<recovery::EpochPlan> plan;
    base::Rank rank;
  };
  base::NodeId node;
  base::Incarnation incarnation;  // given by the coordinator; a new process begins without
  std::string job_id;
  std::map<uint32_t, WorkerBody> workers;
  bool obeys = true;  // orders are followed
  bool beats = true;
  bool comes_again = true;  // connects anew when the connection is lost
  std::vector<rpc::Frame> heard;
  std::optional<protocol::Dismiss> dismissed;
  uint32_t connections = 0;
};

// What the made-up job does.
struct Play {
  uint64_t steps = 4;
  uint64_t train_to = 4;  // engines stop here and wait
};

class AgentProcess final : public chaos::SimProcess {
 public:
  AgentProcess(chaos::SimHost& host, NodeStage& stage, const Play& play);
  void say(rpc::Frame frame);
  template <typename M>
  void say(const M& message) {
    say(protocol::to_frame(message, {.incarnation = stage_.incarnation}));
  }
  // Something that a worker says, passed on.
  template <typename M>
  void tell(uint32_t worker, const M& message, base::Epoch epoch) {
    pass_on({.worker = base::WorkerId(worker),
             .incarnation = stage_.workers.at(worker).info.incarnation,
             .epoch = epoch,
             .type = M::kType,
             .payload = rpc::to_bytes(message)});
  }
  void pass_on(protocol::WorkerMessage message);
  void train();  // all running workers, up to Play::train_to

 private:
  base::Task<void> live();
  base::Task<base::Status> join();
  base::Task<void> send_loop();
  base::Task<void> beat_loop();
  void hear(const rpc::Frame& frame);
  void follow(NodeStage::WorkerBody& body, const protocol::ToWorkers& order, base::Epoch epoch);
  void train(NodeStage::WorkerBody& body);
  void report(NodeStage::WorkerBody& body, base::Step after);

  chaos::SimHost& host_;
  NodeStage& stage_;
  const Play& play_;
  base::SeededRandom random_;
  base::Gate gate_;
  std::shared_ptr<rpc::MessageChannel> channel_;
  std::deque<rpc::Frame> outgoing_;
  base::Condition wake_;
};

// A connection that the test plays by hand. All calls run the world until they are done.
class Stranger {
 public:
  Stranger(chaos::SimWorld& world, chaos::SimHost& host) : world_(world), host_(host), random_(9) {}
  base::Status connect();
  base::Status shake(rpc::PeerIdentity self, const std::string& secret = kSecret);
  base::Status send(const rpc::Frame& frame);
  template <typename M>
  base::Status send(const M& message) {
    return send(protocol::to_frame(message, {}));
  }
  base::Status send_bytes(const std::vector<std::byte>& bytes);
  base::Result<rpc::Frame> receive(base::Nanos timeout = 30_s);
  template <typename M>
  base::Result<M> expect() {
    ASSIGN_OR_RETURN(const rpc::Frame frame, receive());
    return protocol::from_frame<M>(frame);
  }

 private:
  chaos::SimWorld& world_;
  chaos::SimHost& host_;
  base::SeededRandom random_;
  base::Channel* raw_ = nullptr;  // of channel_
  std::unique_ptr<rpc::MessageChannel> channel_;
};

// Nodes 0-2 with a worker each; the job wants two pipelines of one stage.
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest();

  void boot_coordinator();
  void restart_coordinator() { world_.host("coordinator").restart(); }
  void boot_agent(uint32_t node);
  void new_process(uint32_t worker);  // before its agent joins
  // Two nodes, up to an active epoch.
  void start_job();
  // All trains to its end, which is ok.
  void finish_job();
  void train_to(uint64_t step);
  bool until(const std::function<bool()>& done, base::Nanos limit = 60_s) {
    return world_.run_until(done, world_.now() + limit);
  }
  void pass(base::Nanos time) { world_.run_until(world_.now() + time); }
  void on_host(const std::string& host, std::function<void()> action);
  void on_agent(uint32_t node, const std::function<void(AgentProcess&)>& action);
  std::optional<base::Status> outcome() const { return outcome_; }
  base::Status wait_for_end();
  size_t heard(uint32_t node, MessageType type) const;
  Stranger stranger() { return Stranger(world_, world_.host("stranger")); }
  // What was logged on stderr while it ran.
  std::string logged(const std::function<void()>& action);
  // Same state as a worker that was never disturbed.
  void expect_whole_ledger() const;

  CoordinatorOptions options_;
  Play play_;
  Record record_;
  JournalStage journal_;
  std::map<uint32_t, NodeStage> nodes_;
  std::map<uint32_t, AgentProcess*> agents_;  // of the world
  std::optional<base::Status> outcome_;
  Coordinator* coordinator_ = nullptr;  // of the world, while it lives
  chaos::SimWorld world_;
};

}  // namespace perdure::runtime::coordinator
