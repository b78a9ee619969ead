#pragma once
// The real Worker on a simulated host, an engine that does what the test says, and the worker's
// agent, played by the test.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/condition.h"
#include "base/gate.h"
#include "chaos/sim_world.h"
#include "runtime/worker/worker.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::worker {

using namespace base::literals;
using protocol::MessageType;

inline constexpr uint16_t kAgentPort = 7;
inline constexpr const char* kSecret = "secret of the job";

// What the engine is to do, and what it was asked for. The test's: outlives the worker.
struct EngineStage {
  base::Result<std::string> device = std::string("fake device");
  recovery::StateReport state;
  base::Result<recovery::VoteValue> vote = base::not_found("no vote");
  base::Status applied;
  recovery::StateReport state_after_apply;
  std::vector<recovery::StateOffer> offers;
  EngineDriver::Restored restored;
  recovery::CommittedState restore_target;
  base::Result<protocol::Prepared> prepared = protocol::Prepared{};
  base::Result<protocol::Loaded> loaded = protocol::Loaded{};
  base::Status gone;
  std::vector<protocol::StepReport> reports;
  bool blocks = false;  // prepare and load take until they are aborted or released
  bool fence_blocks = false;

  std::vector<std::string> calls;  // "fence 3", "prepare 1", "abort <why>", ...
  std::optional<recovery::VoteValue> given_vote;
  std::vector<protocol::RankAddress> addresses;
  EngineListener* listener = nullptr;
  size_t count(const std::string& call) const;  // that begin with it
};

class ScriptedEngine final : public EngineDriver {
 public:
  explicit ScriptedEngine(EngineStage& stage) : stage_(stage) {}
  void listen(EngineListener& listener) override { stage_.listener = &listener; }
  base::Task<base::Result<std::string>> open(protocol::JobText job) override;
  base::Task<recovery::StateReport> fence(base::Epoch epoch) override;
  base::Result<recovery::VoteValue> vote() const override { return stage_.vote; }
  base::Task<base::Status> apply_vote(recovery::VoteValue vote) override;
  recovery::StateReport state() const override { return stage_.state; }
  base::Task<std::vector<recovery::StateOffer>> offers() override;
  base::Task<Restored> restore(recovery::CommittedState target,
                               std::vector<recovery::TensorDigest> tensors) override;
  base::Task<base::Result<protocol::Prepared>> prepare(recovery::EpochPlan plan,
                                                       base::Rank rank) override;
  base::Task<base::Result<protocol::Loaded>> load(
      std::vector<protocol::RankAddress> addresses) override;
  base::Status go() override;
  void hold() override { stage_.calls.emplace_back("hold"); }
  void abort(const base::Status& why) override;
  std::vector<protocol::StepReport> reports(base::Step after) const override;
  base::Task<void> close() override;
  void release();  // what blocks

 private:
  base::Task<base::Status> block();
  EngineStage& stage_;
  uint64_t aborts_ = 0;
  base::Condition changed_;
};

// Of the agent's end; outlives its host's process.
struct AgentStage {
  std::string secret = kSecret;
  bool gives_job = true;
  bool acks = true;
  std::optional<rpc::Frame> instead_of_job;
  uint32_t lease_ms = 1000;
  std::vector<rpc::Frame> heard;  // without beats
  size_t beats = 0;
  std::optional<rpc::PeerIdentity> peer;
};

class FakeAgent;

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest();
  void start_agent();
  void start_worker();
  // Up to the end of WorkerJob.
  void join();
  void pass(base::Nanos time) { world_.run_until(world_.now() + time); }
  bool until(const std::function<bool()>& done, base::Nanos limit = 60_s) {
    return world_.run_until(done, world_.now() + limit);
  }
  base::Status outcome();  // runs until the worker has left
  bool is_over() const { return outcome_.has_value(); }

  // The agent passes it on, and 50 ms go by.
  void order(const rpc::Frame& frame);
  template <typename M>
  void order(const M& message, uint64_t epoch) {
    order(protocol::to_frame(message, {.epoch = base::Epoch(epoch)}));
  }
  void order_garbage(MessageType type, uint64_t epoch);
  void close_agent();
  // Up to this rank's Loaded in the epoch.
  void prepare(uint64_t epoch, uint32_t rank);
  void load(uint64_t epoch, uint32_t rank);
  protocol::Prepare plan_for(uint64_t epoch, uint32_t rank) const;
  // On the worker's host.
  void engine_says(const std::function<void(EngineListener&)>& action);
  void release_engine();

  template <typename M>
  std::vector<M> heard() const {
    std::vector<M> found;
    for (const rpc::Frame& frame : agent_stage_.heard) {
      if (frame.type != static_cast<uint16_t>(M::kType)) continue;
      auto message = protocol::from_frame<M>(frame);
      CHECK(message.is_ok()) << message.status();
      found.push_back(*message);
    }
    return found;
  }
  const rpc::Frame& last() const { return agent_stage_.heard.back(); }
  void expect_stopped(base::StatusCode code, const std::string& text);
  void clear() {
    agent_stage_.heard.clear();
    engine_.calls.clear();
  }

  EngineStage engine_;
  AgentStage agent_stage_;
  std::optional<base::Status> outcome_;
  FakeAgent* agent_ = nullptr;        // of the world
  ScriptedEngine* driver_ = nullptr;  // of the world
  chaos::SimWorld world_;

 private:
  void on_host(const std::string& host, std::function<void()> action);
};

}  // namespace perdure::runtime::worker
