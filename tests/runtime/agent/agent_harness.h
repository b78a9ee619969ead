#pragma once
// An agent in a simulated world, with a coordinator and workers that do what a test tells them.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chaos/sim_world.h"
#include "runtime/agent/agent.h"
#include "runtime/protocol/epoch_messages.h"
#include "runtime/protocol/report_messages.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::agent {

using protocol::MessageType;

inline constexpr uint16_t kCoordinatorPort = 7;
inline constexpr const char* kSecret = "secret";

// A frame, and when it came (world time).
struct Heard {
  base::Nanos when{0};
  rpc::Frame frame;
};

// What a worker's process does; the test changes it while it runs.
class FakeWorker {
 public:
  FakeWorker(chaos::SimHost& host, WorkerStart given, base::UniqueFunction<void(std::string)> exit)
      : start(std::move(given)), host_(host), on_exit_(std::move(exit)) {}

  static base::Task<void> live(std::shared_ptr<FakeWorker> self);
  static base::Task<void> beat(std::shared_ptr<FakeWorker> self);
  void say(rpc::Frame frame);
  void end(const std::string& how);  // of the process
  void drop();                       // on_exit is not called any more
  size_t heard_count(MessageType type) const;

  const WorkerStart start;
  bool is_running = true;
  bool is_paused = false;  // SIGSTOP
  bool ignores_dismiss = false;
  bool closes_only = false;  // closes its connection and lives on
  base::Step step;
  std::vector<Heard> heard;

 private:
  chaos::SimHost& host_;
  base::UniqueFunction<void(std::string)> on_exit_;
  std::weak_ptr<rpc::MessageChannel> channel_;  // owned by live(): it ends with the host
  std::deque<rpc::Frame> outgoing_;
  base::Condition wake_;
};

// Shared by the lives of a host.
struct WorkerStage {
  std::map<uint32_t, std::vector<std::shared_ptr<FakeWorker>>> started;  // by worker, oldest first
  std::map<uint32_t, int> starts_that_fail;
  bool ignore_dismiss = false;
  FakeWorker& newest(uint32_t worker) { return *started.at(worker).back(); }
  size_t count(uint32_t worker) { return started[worker].size(); }
};

class FakeStarter final : public WorkerStarter {
 public:
  FakeStarter(chaos::SimHost& host, WorkerStage& stage) : host_(host), stage_(stage) {}
  base::Result<std::unique_ptr<WorkerProcess>> start(
      const WorkerStart& start, base::UniqueFunction<void(std::string how)> on_exit) override;

 private:
  chaos::SimHost& host_;
  WorkerStage& stage_;
  base::Gate gate_;
};

class AgentProcess final : public chaos::SimProcess {
 public:
  AgentProcess(chaos::SimHost& host, const AgentOptions& options, FindCoordinator find,
               WorkerStage& stage, std::optional<base::Status>& outcome);
  Agent& agent() { return agent_; }

 private:
  base::Gate gate_;
  FakeStarter starter_;
  Agent agent_;
};

// What the coordinator says and has heard; lives on when its process dies.
struct CoordinatorStage {
  protocol::NodeWelcome welcome;
  std::optional<protocol::Dismiss> refuses;  // instead of a welcome
  bool acks = true;
  bool answers = true;  // to NodeJoin
  uint16_t port = kCoordinatorPort;
  std::vector<Heard> heard;
  std::vector<protocol::NodeJoin> joins;
  std::vector<base::Incarnation> join_incarnations;
};

class CoordinatorHost final : public chaos::SimProcess {
 public:
  CoordinatorHost(chaos::SimHost& host, CoordinatorStage& stage);
  void say(rpc::Frame frame);

 private:
  base::Task<void> accept_loop();
  base::Task<void> serve(std::unique_ptr<base::Channel> raw);
  base::Task<void> send_loop(std::shared_ptr<rpc::MessageChannel> channel);
  base::Status answer(const rpc::Frame& frame);

  chaos::SimHost& host_;
  CoordinatorStage& stage_;
  base::SeededRandom random_;
  base::Gate gate_;
  std::unique_ptr<base::Listener> listener_;
  std::shared_ptr<rpc::MessageChannel> channel_;
  std::deque<rpc::Frame> outgoing_;
  base::Condition wake_;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest();

  void boot_coordinator();
  void boot_node();
  // Both, and all workers are up.
  void start();
  void pass(base::Nanos time) { world_.run_until(world_.now() + time); }
  bool until(const std::function<bool()>& done, base::Nanos limit = std::chrono::seconds(30)) {
    return world_.run_until(done, world_.now() + limit);
  }
  // Code of the test on a host, in its turn.
  void on(const std::string& host, std::function<void()> action);
  // The coordinator says it.
  template <typename M>
  void say(const M& message, base::Epoch epoch = {}) {
    rpc::Frame frame = protocol::to_frame(message, {.epoch = epoch});
    on("coordinator", [this, frame] { coordinator_->say(frame); });
  }
  // To the newest process of the worker.
  template <typename M>
  void tell(uint32_t worker, const M& message, base::Epoch epoch) {
    say(to_worker(worker, workers_.newest(worker).start.incarnation, message), epoch);
  }
  template <typename M>
  static protocol::ToWorkers to_worker(uint32_t worker, base::Incarnation incarnation,
                                       const M& message) {
    return {.targets = {{.worker = base::WorkerId(worker), .incarnation = incarnation}},
            .type = M::kType,
            .payload = rpc::to_bytes(message)};
  }
  // A worker says it.
  template <typename M>
  void from_worker(uint32_t worker, const M& message, base::Epoch epoch) {
    FakeWorker& body = workers_.newest(worker);
    rpc::Frame frame =
        protocol::to_frame(message, {.epoch = epoch, .incarnation = body.start.incarnation});
    on("node", [&body, frame] { body.say(frame); });
  }

  // What the coordinator has heard.
  template <typename M>
  std::vector<M> heard() {
    std::vector<M> found;
    for (const Heard& h : stage_.heard) {
      if (h.frame.type != static_cast<uint16_t>(M::kType)) continue;
      auto message = protocol::from_frame<M>(h.frame);
      CHECK(message.is_ok()) << message.status();
      found.push_back(*message);
    }
    return found;
  }
  std::vector<protocol::WorkerMessage> worker_messages();
  Agent& agent() { return agent_process_->agent(); }

  CoordinatorStage stage_;
  WorkerStage workers_;
  std::optional<base::Status> outcome_;  // of Agent::run
  CoordinatorHost* coordinator_ = nullptr;
  AgentProcess* agent_process_ = nullptr;
  AgentOptions options_;
  chaos::SimWorld world_;
};

}  // namespace perdure::runtime::agent
