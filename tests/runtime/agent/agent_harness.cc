#include "tests/runtime/agent/agent_harness.h"

#include <utility>

#include "base/sleep.h"
#include "runtime/rpc/handshake.h"

namespace perdure::runtime::agent {
namespace {

using namespace base::literals;
using base::Nanos;
using base::Status;
using base::Task;

Task<void> call(std::function<void()> action) {
  action();
  co_return;
}

class FakeProcess final : public WorkerProcess {
 public:
  explicit FakeProcess(std::shared_ptr<FakeWorker> body) : body_(std::move(body)) {}
  ~FakeProcess() override { body_->drop(); }
  uint64_t pid() const override { return 100 + body_->start.worker.value(); }
  bool is_running() const override { return body_->is_running; }
  void kill() override { body_->end("signal 9 (Killed)"); }

 private:
  std::shared_ptr<FakeWorker> body_;
};

}  // namespace

Task<void> FakeWorker::live(std::shared_ptr<FakeWorker> self) {
  const Nanos connect_by = self->host_.clock().now() + 5_s;
  auto raw = co_await self->host_.network().connect(self->start.agent, connect_by);
  if (!raw.is_ok() || !self->is_running) co_return;
  auto channel = std::make_shared<rpc::MessageChannel>(std::move(raw).value());
  self->channel_ = channel;
  base::SeededRandom random(self->start.incarnation.value());
  const rpc::PeerIdentity me{.role = rpc::PeerRole::kWorker,
                             .number = self->start.worker.value(),
                             .incarnation = self->start.incarnation};
  const std::string secret = kSecret;
  const Status met =
      co_await rpc::offer_handshake(*channel, secret, me, random, self->host_.clock());
  if (!met.is_ok()) co_return;
  protocol::WorkerUp up;
  up.info.worker = self->start.worker;
  up.info.incarnation = self->start.incarnation;
  up.info.device = "fake";
  up.info.pid = 100 + self->start.worker.value();
  self->outgoing_.push_front(protocol::to_frame(up, {}));
  self->wake_.notify_all();
  while (self->is_running && !self->closes_only) {
    auto frame = co_await channel->receive(base::kNoDeadline);
    if (!frame.is_ok()) co_return;
    const bool dismissed = frame->type == static_cast<uint16_t>(MessageType::kDismiss);
    self->heard.push_back({self->host_.clock().now(), std::move(frame).value()});
    if (dismissed && !self->ignores_dismiss) self->end("exit code 0");
  }
}

// All sending is here: one send at a time.
Task<void> FakeWorker::beat(std::shared_ptr<FakeWorker> self) {
  uint64_t sequence = 0;
  Nanos next_beat = self->host_.clock().now() + 50_ms;
  while (self->is_running && !self->closes_only) {
    const Nanos now = self->host_.clock().now();
    rpc::Frame frame;
    if (!self->is_paused && !self->channel_.expired() && !self->outgoing_.empty()) {
      frame = std::move(self->outgoing_.front());
      self->outgoing_.pop_front();
    } else if (now >= next_beat) {
      next_beat = now + 50_ms;
      if (self->is_paused || self->channel_.expired()) continue;
      frame = protocol::to_frame(protocol::Beat{.sequence = ++sequence, .step = self->step}, {});
    } else {
      const Status woken = co_await self->wake_.wait(self->host_.clock(), next_beat);
      (void)woken.is_ok();
      continue;
    }
    const Nanos deadline = now + 5_s;
    auto channel = self->channel_.lock();
    const Status sent = co_await channel->send(frame, deadline);
    if (!sent.is_ok()) co_return;
  }
  const auto channel = self->channel_.lock();
  if (self->closes_only && channel != nullptr) channel->close();
}

void FakeWorker::say(rpc::Frame frame) {
  outgoing_.push_back(std::move(frame));
  wake_.notify_all();
}

void FakeWorker::end(const std::string& how) {
  if (!std::exchange(is_running, false)) return;
  if (const auto channel = channel_.lock(); channel != nullptr) channel->close();
  wake_.notify_all();
  if (!on_exit_) return;
  base::post(host_.executor(), [exit = std::move(on_exit_), how]() mutable { exit(how); });
}

void FakeWorker::drop() {
  on_exit_ = {};
  is_running = false;
}

size_t FakeWorker::heard_count(MessageType type) const {
  size_t count = 0;
  for (const Heard& h : heard) count += h.frame.type == static_cast<uint16_t>(type) ? 1 : 0;
  return count;
}

base::Result<std::unique_ptr<WorkerProcess>> FakeStarter::start(
    const WorkerStart& start, base::UniqueFunction<void(std::string how)> on_exit) {
  const uint32_t worker = start.worker.value();
  if (stage_.starts_that_fail[worker]-- > 0) return base::invalid_argument("cannot start it");
  auto body = std::make_shared<FakeWorker>(host_, start, std::move(on_exit));
  body->ignores_dismiss = stage_.ignore_dismiss;
  stage_.started[worker].push_back(body);
  CHECK(base::spawn(host_.executor(), gate_, FakeWorker::live(body)).is_ok());
  CHECK(base::spawn(host_.executor(), gate_, FakeWorker::beat(body)).is_ok());
  return std::unique_ptr<WorkerProcess>(std::make_unique<FakeProcess>(body));
}

AgentProcess::AgentProcess(chaos::SimHost& host, const AgentOptions& options, FindCoordinator find,
                           WorkerStage& stage, std::optional<Status>& outcome)
    : starter_(host, stage),
      agent_(options, {host.network(), host.clock(), host.executor(), starter_}, std::move(find)) {
  CHECK(base::spawn(host.executor(), gate_, base::store_result(agent_.run(), outcome)).is_ok());
}

CoordinatorHost::CoordinatorHost(chaos::SimHost& host, CoordinatorStage& stage)
    : host_(host), stage_(stage), random_(3) {
  auto listener = host.network().listen({"coordinator", stage.port});
  CHECK(listener.is_ok()) << listener.status();
  listener_ = std::move(listener).value();
  CHECK(base::spawn(host_.executor(), gate_, accept_loop()).is_ok());
}

Task<void> CoordinatorHost::accept_loop() {
  while (true) {
    auto channel = co_await listener_->accept(base::kNoDeadline);
    if (!channel.is_ok()) co_return;
    CHECK(base::spawn(host_.executor(), gate_, serve(std::move(channel).value())).is_ok());
  }
}

Task<void> CoordinatorHost::serve(std::unique_ptr<base::Channel> raw) {
  auto channel = std::make_shared<rpc::MessageChannel>(std::move(raw));
  const std::string secret = kSecret;
  auto peer = co_await rpc::accept_handshake(*channel, secret, random_, host_.clock());
  if (!peer.is_ok()) co_return;
  CHECK(peer->role == rpc::PeerRole::kAgent);
  channel_ = channel;
  outgoing_.clear();
  CHECK(base::spawn(host_.executor(), gate_, send_loop(channel)).is_ok());
  while (true) {
    auto frame = co_await channel->receive(base::kNoDeadline);
    if (!frame.is_ok()) break;
    stage_.heard.push_back({host_.clock().now(), *frame});
    CHECK(answer(*frame).is_ok());
  }
  channel->close();
  wake_.notify_all();
}

Status CoordinatorHost::answer(const rpc::Frame& frame) {
  if (frame.type == static_cast<uint16_t>(MessageType::kNodeJoin)) {
    ASSIGN_OR_RETURN(const auto join, protocol::from_frame<protocol::NodeJoin>(frame));
    stage_.joins.push_back(join);
    stage_.join_incarnations.push_back(frame.stamp.incarnation);
    if (!stage_.answers) return Status::ok();
    if (stage_.refuses.has_value()) {
      say(protocol::to_frame(*stage_.refuses, {}));
    } else {
      say(protocol::to_frame(stage_.welcome, {}));
    }
  } else if (frame.type == static_cast<uint16_t>(MessageType::kBeat) && stage_.acks) {
    ASSIGN_OR_RETURN(const auto beat, protocol::from_frame<protocol::Beat>(frame));
    say(protocol::to_frame(protocol::BeatAck{.sequence = beat.sequence}, {}));
  }
  return Status::ok();
}

void CoordinatorHost::say(rpc::Frame frame) {
  outgoing_.push_back(std::move(frame));
  wake_.notify_all();
}

Task<void> CoordinatorHost::send_loop(std::shared_ptr<rpc::MessageChannel> channel) {
  while (channel == channel_) {
    if (outgoing_.empty()) {
      const Status woken = co_await wake_.wait();
      if (!woken.is_ok()) co_return;
      continue;
    }
    const rpc::Frame frame = std::move(outgoing_.front());
    outgoing_.pop_front();
    const Nanos deadline = host_.clock().now() + 5_s;
    const Status sent = co_await channel->send(frame, deadline);
    if (!sent.is_ok()) co_return;
  }
}

AgentTest::AgentTest() : world_({.seed = 5}) {
  stage_.welcome = {.incarnation = base::Incarnation(3),
                    .job_id = "job",
                    .workers = {base::WorkerId(0), base::WorkerId(1)},
                    .lease_ms = 1000,
                    .beat_ms = 250,
                    .job = {.toml = "[run]\n", .source = "job.toml", .overrides = {}}};
  options_.node = base::NodeId(4);
  options_.pid = 77;
  options_.secret = kSecret;
  options_.listen = base::Address("node", 0);
  for (const char* name : {"coordinator", "node", "stranger"}) world_.add_host(name);
}

void AgentTest::boot_coordinator() {
  world_.host("coordinator").boot([this](chaos::SimHost& host) {
    auto process = std::make_unique<CoordinatorHost>(host, stage_);
    coordinator_ = process.get();
    return process;
  });
}

void AgentTest::boot_node() {
  world_.host("node").boot([this](chaos::SimHost& host) {
    auto process = std::make_unique<AgentProcess>(
        host, options_,
        [this] { return base::Result<base::Address>(base::Address("coordinator", stage_.port)); },
        workers_, outcome_);
    agent_process_ = process.get();
    return process;
  });
}

void AgentTest::start() {
  boot_coordinator();
  boot_node();
  ASSERT_TRUE(until([this] { return heard<protocol::WorkerUp>().size() == 2; }));
  pass(100_ms);
}

void AgentTest::on(const std::string& host, std::function<void()> action) {
  bool called = false;
  world_.host(host).spawn(call([&called, action = std::move(action)] {
    action();
    called = true;
  }));
  CHECK(until([&called] { return called; }, 1_s));
}

std::vector<protocol::WorkerMessage> AgentTest::worker_messages() {
  std::vector<protocol::WorkerMessage> found;
  for (const auto& from : heard<protocol::FromWorkers>()) {
    found.insert(found.end(), from.messages.begin(), from.messages.end());
  }
  return found;
}

}  // namespace perdure::runtime::agent
