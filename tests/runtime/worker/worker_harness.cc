#include "tests/runtime/worker/worker_harness.h"

#include "runtime/protocol/node_messages.h"

namespace perdure::runtime::worker {
namespace {

using base::Status;
using base::Task;

constexpr base::WorkerId kWorker(5);
constexpr base::Incarnation kIncarnation(3);

Task<void> call(std::function<void()> action) {
  action();
  co_return;
}

class WorkerProcess final : public chaos::SimProcess {
 public:
  WorkerProcess(chaos::SimHost& host, EngineStage& stage, ScriptedEngine*& driver,
                std::optional<Status>& outcome)
      : engine_(stage),
        worker_({.agent = base::Address("agent", kAgentPort),
                 .worker = kWorker,
                 .incarnation = kIncarnation,
                 .secret = kSecret,
                 .pid = 99,
                 .nonce_seed = 4},
                {host.network(), host.clock(), host.executor(), engine_}) {
    driver = &engine_;
    CHECK(base::spawn(host.executor(), gate_, base::store_result(worker_.run(), outcome)).is_ok());
  }

 private:
  ScriptedEngine engine_;
  Worker worker_;
  base::Gate gate_;
};

}  // namespace

size_t EngineStage::count(const std::string& call) const {
  size_t result = 0;
  for (const std::string& c : calls) result += c.starts_with(call) ? 1 : 0;
  return result;
}

Task<base::Result<std::string>> ScriptedEngine::open(protocol::JobText job) {
  stage_.calls.push_back("open " + job.source);
  co_return stage_.device;
}

Task<Status> ScriptedEngine::block() {
  const uint64_t before = aborts_;
  while (stage_.blocks && aborts_ == before) {
    const Status woken = co_await changed_.wait();
    CHECK(woken.is_ok());
  }
  co_return aborts_ == before ? Status::ok() : base::aborted("interrupted");
}

Task<recovery::StateReport> ScriptedEngine::fence(base::Epoch epoch) {
  stage_.calls.push_back("fence " + std::to_string(epoch.value()));
  while (stage_.fence_blocks) {
    const Status woken = co_await changed_.wait();
    CHECK(woken.is_ok());
  }
  co_return stage_.state;
}

Task<Status> ScriptedEngine::apply_vote(recovery::VoteValue vote) {
  stage_.calls.emplace_back("apply");
  stage_.given_vote = vote;
  if (stage_.applied.is_ok()) stage_.state = stage_.state_after_apply;
  co_return stage_.applied;
}

Task<std::vector<recovery::StateOffer>> ScriptedEngine::offers() {
  stage_.calls.emplace_back("offers");
  co_return stage_.offers;
}

Task<EngineDriver::Restored> ScriptedEngine::restore(recovery::CommittedState target,
                                                     std::vector<recovery::TensorDigest> tensors) {
  stage_.calls.push_back("restore " + std::to_string(tensors.size()));
  stage_.restore_target = target;
  const Status blocked = co_await block();
  if (!blocked.is_ok()) co_return Restored{};
  co_return stage_.restored;
}

Task<base::Result<protocol::Prepared>> ScriptedEngine::prepare(recovery::EpochPlan,
                                                               base::Rank rank) {
  stage_.calls.push_back("prepare " + std::to_string(rank.value()));
  CO_RETURN_IF_ERROR(co_await block());
  co_return stage_.prepared;
}

Task<base::Result<protocol::Loaded>> ScriptedEngine::load(
    std::vector<protocol::RankAddress> addresses) {
  stage_.calls.emplace_back("load");
  stage_.addresses = addresses;
  CO_RETURN_IF_ERROR(co_await block());
  co_return stage_.loaded;
}

Status ScriptedEngine::go() {
  stage_.calls.emplace_back("go");
  return stage_.gone;
}

void ScriptedEngine::abort(const Status& why) {
  stage_.calls.push_back("abort " + why.message());
  ++aborts_;
  changed_.notify_all();
}

std::vector<protocol::StepReport> ScriptedEngine::reports(base::Step after) const {
  std::vector<protocol::StepReport> result;
  for (const protocol::StepReport& report : stage_.reports) {
    if (report.step > after) result.push_back(report);
  }
  return result;
}

Task<void> ScriptedEngine::close() {
  stage_.calls.emplace_back("close");
  co_return;
}

void ScriptedEngine::release() {
  stage_.blocks = false;
  stage_.fence_blocks = false;
  changed_.notify_all();
}

// One worker's connection.
class FakeAgent final : public chaos::SimProcess {
 public:
  FakeAgent(chaos::SimHost& host, AgentStage& stage)
      : host_(host), stage_(stage), random_(8), outgoing_(1 << 16, host.clock()) {
    const base::Address address("agent", kAgentPort);
    listener_ = host.network().listen(address).value();
    CHECK(base::spawn(host.executor(), gate_, live()).is_ok());
  }
  void say(rpc::Frame frame) { CHECK(outgoing_.try_push(std::move(frame)).is_ok()); }
  void close() { channel_->close(); }

 private:
  Task<void> live() {
    auto raw = co_await listener_->accept(base::kNoDeadline);
    if (!raw.is_ok()) co_return;
    channel_ = std::make_unique<rpc::MessageChannel>(std::move(raw).value());
    auto peer = co_await rpc::accept_handshake(*channel_, stage_.secret, random_, host_.clock());
    if (!peer.is_ok()) co_return;
    stage_.peer = *peer;
    CHECK(base::spawn(host_.executor(), gate_, send_loop()).is_ok());
    while (true) {
      auto frame = co_await channel_->receive(base::kNoDeadline);
      if (!frame.is_ok()) co_return;
      hear(*frame);
    }
  }
  Task<void> send_loop() {
    while (true) {
      auto next = co_await outgoing_.pop(base::kNoDeadline);
      if (!next.is_ok()) co_return;
      const Status sent = co_await channel_->send(std::move(next).value(), base::kNoDeadline);
      if (!sent.is_ok()) co_return;
    }
  }
  void hear(const rpc::Frame& frame) {
    if (frame.type == static_cast<uint16_t>(MessageType::kBeat)) {
      ++stage_.beats;
      const auto beat = protocol::from_frame<protocol::Beat>(frame);
      CHECK(beat.is_ok());
      if (stage_.acks) say(protocol::to_frame(protocol::BeatAck{.sequence = beat->sequence}, {}));
      return;
    }
    stage_.heard.push_back(frame);
    if (frame.type != static_cast<uint16_t>(MessageType::kWorkerUp)) return;
    if (stage_.instead_of_job.has_value()) {
      say(*stage_.instead_of_job);
    } else if (stage_.gives_job) {
      protocol::WorkerJob job{.lease_ms = stage_.lease_ms, .beat_ms = 250};
      job.job.source = "job.toml";
      say(protocol::to_frame(job, {}));
    }
  }

  chaos::SimHost& host_;
  AgentStage& stage_;
  base::SeededRandom random_;
  base::Gate gate_;
  std::unique_ptr<base::Listener> listener_;
  std::unique_ptr<rpc::MessageChannel> channel_;
  base::TaskQueue<rpc::Frame> outgoing_;
};

WorkerTest::WorkerTest() : world_({.seed = testing::test_seed()}) {
  world_.add_host("agent");
  world_.add_host("worker");
}

void WorkerTest::start_agent() {
  world_.host("agent").boot([this](chaos::SimHost& host) {
    auto agent = std::make_unique<FakeAgent>(host, agent_stage_);
    agent_ = agent.get();
    return agent;
  });
}

void WorkerTest::start_worker() {
  world_.host("worker").boot([this](chaos::SimHost& host) {
    return std::make_unique<WorkerProcess>(host, engine_, driver_, outcome_);
  });
}

void WorkerTest::join() {
  start_agent();
  start_worker();
  ASSERT_TRUE(until([this] { return engine_.count("open job.toml") == 1; }));
  pass(50_ms);
  clear();
}

Status WorkerTest::outcome() {
  if (!until([this] { return outcome_.has_value(); }, 3600_s))
    return base::unimplemented("the worker does not end");
  return *outcome_;
}

void WorkerTest::on_host(const std::string& host, std::function<void()> action) {
  bool called = false;
  world_.host(host).spawn(call([&called, action = std::move(action)] {
    action();
    called = true;
  }));
  CHECK(until([&called] { return called; }, 1_s));
}

void WorkerTest::order(const rpc::Frame& frame) {
  on_host("agent", [this, frame] { agent_->say(frame); });
  pass(50_ms);
}

void WorkerTest::order_garbage(MessageType type, uint64_t epoch) {
  order(rpc::Frame{.type = static_cast<uint16_t>(type),
                   .stamp = {.epoch = base::Epoch(epoch)},
                   .payload = rpc::Payload(3, std::byte{0xee})});
}

void WorkerTest::close_agent() {
  on_host("agent", [this] { agent_->close(); });
}

void WorkerTest::engine_says(const std::function<void(EngineListener&)>& action) {
  on_host("worker", [this, action] { action(*engine_.listener); });
  pass(50_ms);
}

void WorkerTest::release_engine() {
  on_host("worker", [this] { driver_->release(); });
  pass(50_ms);
}

protocol::Prepare WorkerTest::plan_for(uint64_t epoch, uint32_t rank) const {
  protocol::Prepare message;
  message.plan.epoch = base::Epoch(epoch);
  for (uint32_t r = 0; r < 3; ++r) {
    if (r == rank) {
      message.ranks.push_back({kWorker, kIncarnation, base::Rank(r)});
    } else {
      message.ranks.push_back({base::WorkerId(10 + r), base::Incarnation(1), base::Rank(r)});
    }
  }
  return message;
}

void WorkerTest::prepare(uint64_t epoch, uint32_t rank) {
  order(protocol::Fence{.why = "test"}, epoch);
  order(plan_for(epoch, rank), epoch);
}

void WorkerTest::load(uint64_t epoch, uint32_t rank) {
  prepare(epoch, rank);
  order(protocol::Load{.addresses = std::vector<protocol::RankAddress>(3)}, epoch);
}

void WorkerTest::expect_stopped(base::StatusCode code, const std::string& text) {
  const auto stopped = heard<protocol::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_EQ(stopped[0].code, static_cast<uint32_t>(code)) << stopped[0].text;
  EXPECT_THAT(stopped[0].text, ::testing::HasSubstr(text));
}

}  // namespace perdure::runtime::worker
