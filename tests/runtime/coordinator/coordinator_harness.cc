#include "tests/runtime/coordinator/coordinator_harness.h"

#include "base/sleep.h"
#include "parallel/layer_cost.h"

namespace perdure::runtime::coordinator {
namespace {

using base::Nanos;
using base::Status;
using base::Task;

recovery::CommittedState committed_at(uint64_t step) {
  return {.step = base::Step(step), .samples_consumed = 8 * step, .applied_steps = step};
}

// Of a rank with all layers.
std::vector<recovery::TensorDigest> digests_at(const parallel::ModelSpec& model, uint64_t step) {
  std::vector<recovery::TensorDigest> result;
  for (uint32_t t = 0; t < model.tensors.size(); ++t)
    result.push_back({base::TensorId(t), base::mix64(t * 1'000'003 + step)});
  return result;
}

parallel::ModelSpec small_model() {
  parallel::ModelConfig config;
  config.layers = 2;
  config.width = 16;
  config.heads = 2;
  config.vocabulary = 32;
  config.context = 8;
  return parallel::make_model_spec(config).value();
}

const parallel::ModelSpec& model() {
  static const parallel::ModelSpec kModel = small_model();
  return kModel;
}

class StagedJournal final : public Journal {
 public:
  StagedJournal(JournalStage& stage, chaos::SimHost& host) : stage_(stage), host_(host) {}
  base::Result<std::vector<JournalRecord>> read_all() override {
    if (!stage_.read_error.is_ok()) return stage_.read_error;
    return stage_.records;
  }
  Status append(const JournalRecord& record) override {
    const size_t index = stage_.appends++;
    if (stage_.refuses_at == index) return base::resource_exhausted("no space");
    if (stage_.dies_before == index) {
      host_.die(chaos::Crash::kProcess);
      return Status::ok();
    }
    if (is_dead_) return Status::ok();
    stage_.records.push_back(record);
    if (stage_.dies_after == index) {
      is_dead_ = true;
      host_.die(chaos::Crash::kProcess);
    }
    return Status::ok();
  }

 private:
  JournalStage& stage_;
  chaos::SimHost& host_;
  bool is_dead_ = false;
};

class CoordinatorProcess final : public chaos::SimProcess {
 public:
  CoordinatorProcess(chaos::SimHost& host, const CoordinatorOptions& options, JournalStage& journal,
                     Record& record, std::optional<Status>& outcome, Coordinator*& self)
      : journal_(journal, host), self_(self) {
    const base::Address address("coordinator", kPort);
    auto listener = host.network().listen(address);
    CHECK(listener.is_ok()) << listener.status();
    coordinator_ = std::make_unique<Coordinator>(options, std::move(*listener), journal_,
                                                 host.clock(), host.executor(), record);
    self_ = coordinator_.get();
    CHECK(base::spawn(host.executor(), gate_, base::store_result(coordinator_->run(), outcome))
              .is_ok());
  }
  ~CoordinatorProcess() override { self_ = nullptr; }

 private:
  StagedJournal journal_;
  Coordinator*& self_;
  std::unique_ptr<Coordinator> coordinator_;
  base::Gate gate_;
};

Task<void> call(std::function<void()> action) {
  action();
  co_return;
}

Task<Status> connect_into(base::Network& network, Nanos deadline,
                          std::unique_ptr<base::Channel>& out) {
  const base::Address address("coordinator", kPort);
  auto channel = co_await network.connect(address, deadline);
  if (channel.is_ok()) out = std::move(*channel);
  co_return channel.status();
}

}  // namespace

StepNews Record::on_step(const protocol::StepReport& report) {
  if (report.step.value() > steps.size() + 1) return StepNews::kGap;
  if (report.step.value() == steps.size() + 1) {
    steps.push_back(report);
    return StepNews::kNew;
  }
  const bool same = steps[report.step.value() - 1].digest_before == report.digest_before;
  return same ? StepNews::kRepeated : StepNews::kDiffers;
}

size_t Record::count(const std::string& kind) const {
  size_t result = 0;
  for (const base::Event& event : events) result += event.kind() == kind ? 1 : 0;
  return result;
}

// -- an agent

AgentProcess::AgentProcess(chaos::SimHost& host, NodeStage& stage, const Play& play)
    : host_(host), stage_(stage), play_(play), random_(stage.node.value() + 1) {
  CHECK(base::spawn(host.executor(), gate_, live()).is_ok());
  CHECK(base::spawn(host.executor(), gate_, send_loop()).is_ok());
  CHECK(base::spawn(host.executor(), gate_, beat_loop()).is_ok());
}

Task<Status> AgentProcess::join() {
  const base::Address address("coordinator", kPort);
  CO_ASSIGN_OR_RETURN(auto raw,
                      co_await host_.network().connect(address, host_.clock().now() + 2_s));
  auto channel = std::make_shared<rpc::MessageChannel>(std::move(raw));
  const rpc::PeerIdentity self{.role = rpc::PeerRole::kAgent,
                               .number = stage_.node.value(),
                               .incarnation = stage_.incarnation};
  const std::string secret = kSecret;
  CO_RETURN_IF_ERROR(co_await rpc::offer_handshake(*channel, secret, self, random_, host_.clock()));
  protocol::NodeJoin message{.node = stage_.node, .pid = 50, .job_id = stage_.job_id};
  for (const auto& [worker, body] : stage_.workers) message.workers.push_back(body.info);
  outgoing_.clear();
  outgoing_.push_back(protocol::to_frame(message, {.incarnation = stage_.incarnation}));
  channel_ = channel;
  ++stage_.connections;
  wake_.notify_all();
  co_return Status::ok();
}

Task<void> AgentProcess::live() {
  while (!stage_.dismissed.has_value()) {
    const Status joined = co_await join();
    while (joined.is_ok()) {
      auto frame = co_await channel_->receive(base::kNoDeadline);
      if (!frame.is_ok()) break;
      hear(*frame);
    }
    if (channel_ != nullptr) channel_->close();
    channel_.reset();
    if (!stage_.comes_again) co_return;
    const Status slept = co_await base::sleep_for(host_.clock(), 50_ms);
    CHECK(slept.is_ok());
  }
}

void AgentProcess::say(rpc::Frame frame) {
  outgoing_.push_back(std::move(frame));
  wake_.notify_all();
}

void AgentProcess::pass_on(protocol::WorkerMessage message) {
  protocol::FromWorkers from;
  from.messages.push_back(std::move(message));
  say(from);
}

Task<void> AgentProcess::send_loop() {
  while (true) {
    if (channel_ == nullptr || outgoing_.empty()) {
      const Status woken = co_await wake_.wait();
      if (!woken.is_ok()) co_return;
      continue;
    }
    const rpc::Frame frame = std::move(outgoing_.front());
    outgoing_.pop_front();
    const auto channel = channel_;
    const Nanos deadline = host_.clock().now() + 5_s;
    const Status sent = co_await channel->send(frame, deadline);
    if (!sent.is_ok()) channel->close();
  }
}

Task<void> AgentProcess::beat_loop() {
  uint64_t sequence = 0;
  while (true) {
    const Status slept = co_await base::sleep_for(host_.clock(), 250_ms);
    CHECK(slept.is_ok());
    if (stage_.beats && channel_ != nullptr && stage_.incarnation.value() != 0)
      say(protocol::Beat{.sequence = ++sequence});
  }
}

void AgentProcess::hear(const rpc::Frame& frame) {
  stage_.heard.push_back(frame);
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kNodeWelcome: {
      const auto welcome = protocol::from_frame<protocol::NodeWelcome>(frame);
      CHECK(welcome.is_ok()) << welcome.status();
      stage_.incarnation = welcome->incarnation;
      stage_.job_id = welcome->job_id;
      break;
    }
    case MessageType::kDismiss: {
      const auto dismiss = protocol::from_frame<protocol::Dismiss>(frame);
      CHECK(dismiss.is_ok()) << dismiss.status();
      stage_.dismissed = *dismiss;
      channel_->close();
      break;
    }
    case MessageType::kToWorkers: {
      const auto order = protocol::from_frame<protocol::ToWorkers>(frame);
      CHECK(order.is_ok()) << order.status();
      for (const protocol::WorkerTarget& target : order->targets) {
        const auto found = stage_.workers.find(target.worker.value());
        if (stage_.obeys && found != stage_.workers.end() &&
            found->second.info.incarnation == target.incarnation)
          follow(found->second, *order, frame.stamp.epoch);
      }
      break;
    }
    default:
      break;
  }
}

void AgentProcess::follow(NodeStage::WorkerBody& body, const protocol::ToWorkers& order,
                          base::Epoch epoch) {
  const uint32_t worker = body.info.worker.value();
  switch (order.type) {
    case MessageType::kFence:
      body.info.epoch = epoch;
      body.info.activity = protocol::Activity::kIdle;
      tell(worker, protocol::StateTold{.state = body.state}, epoch);
      break;
    case MessageType::kPrepare: {
      const auto message = rpc::from_bytes<protocol::Prepare>(order.payload).value();
      body.plan = message.plan;
      for (const protocol::RankedWorker& entry : message.ranks) {
        if (entry.worker == body.info.worker && entry.incarnation == body.info.incarnation)
          body.rank = entry.rank;
      }
      tell(worker, protocol::Prepared{.address = {std::byte(worker)}, .device = "fake"}, epoch);
      break;
    }
    case MessageType::kLoad:
      body.state = {.has_state = 1,
                    .committed = body.plan->resume,
                    .tensors = digests_at(model(), body.plan->resume.step.value())};
      body.info.activity = protocol::Activity::kLoaded;
      tell(worker,
           protocol::Loaded{.committed = body.state.committed, .tensors = body.state.tensors},
           epoch);
      break;
    case MessageType::kGo:
      body.info.activity = protocol::Activity::kRunning;
      train(body);
      break;
    case MessageType::kHold:
      tell(worker, protocol::Stopped{.step = body.state.committed.step}, epoch);
      break;
    case MessageType::kAskReports: {
      const auto ask = rpc::from_bytes<protocol::AskReports>(order.payload).value();
      report(body, ask.reported);
      if (body.info.activity == protocol::Activity::kFinished)
        tell(worker, protocol::Finished{.step = body.state.committed.step}, epoch);
      break;
    }
    default:
      break;
  }
}

void AgentProcess::report(NodeStage::WorkerBody& body, base::Step after) {
  for (uint64_t s = after.value() + 1; s <= body.state.committed.step.value(); ++s) {
    const protocol::StepReport step{.step = base::Step(s),
                                    .digest_before = base::mix64(s),
                                    .epoch = body.info.epoch,
                                    .first_sample = 8 * (s - 1),
                                    .sample_count = 8};
    tell(body.info.worker.value(), step, body.info.epoch);
  }
}

void AgentProcess::train(NodeStage::WorkerBody& body) {
  const base::Step from = body.state.committed.step;
  const uint64_t to = std::max(play_.train_to, from.value());
  body.state.committed = committed_at(to);
  body.state.tensors = digests_at(model(), to);
  if (body.rank == base::Rank(0)) report(body, from);
  if (to < play_.steps) return;
  body.info.activity = protocol::Activity::kFinished;
  tell(body.info.worker.value(), protocol::Finished{.step = base::Step(to)}, body.info.epoch);
}

void AgentProcess::train() {
  for (auto& [worker, body] : stage_.workers) {
    if (body.info.activity == protocol::Activity::kRunning) train(body);
  }
}

// -- a stranger

Status Stranger::connect() {
  std::unique_ptr<base::Channel> channel;
  RETURN_IF_ERROR(world_.run(host_, connect_into(host_.network(), world_.now() + 5_s, channel)));
  raw_ = channel.get();
  channel_ = std::make_unique<rpc::MessageChannel>(std::move(channel));
  return Status::ok();
}

Status Stranger::shake(rpc::PeerIdentity self, const std::string& secret) {
  RETURN_IF_ERROR(connect());
  return world_.run(host_, rpc::offer_handshake(*channel_, secret, self, random_, host_.clock()));
}

Status Stranger::send(const rpc::Frame& frame) {
  return world_.run(host_, channel_->send(frame, world_.now() + 5_s));
}

Status Stranger::send_bytes(const std::vector<std::byte>& bytes) {
  return world_.run(host_, raw_->send(bytes, world_.now() + 5_s));
}

base::Result<rpc::Frame> Stranger::receive(Nanos timeout) {
  return world_.run(host_, channel_->receive(world_.now() + timeout));
}

// -- the fixture

CoordinatorTest::CoordinatorTest() : world_({.seed = testing::test_seed()}) {
  options_.job_id = "job-1";
  options_.secret = kSecret;
  options_.job = {.toml = "[run]\n", .source = "job.toml", .overrides = {}};
  options_.nodes = 3;
  options_.machine.model = model();
  options_.machine.pipelines = 2;
  options_.machine.stages = 1;
  options_.machine.micro_batches = 8;
  options_.machine.layer_cost = parallel::relative_layer_costs(model());
  world_.add_host("coordinator");
  world_.add_host("stranger");
  for (uint32_t n = 0; n < 3; ++n) {
    world_.add_host("n" + std::to_string(n));
    nodes_[n].node = base::NodeId(n);
    new_process(n);
  }
}

void CoordinatorTest::new_process(uint32_t worker) {
  NodeStage& stage = nodes_.at(worker);
  const uint64_t incarnation =
      stage.workers.contains(worker) ? stage.workers[worker].info.incarnation.value() + 1 : 1;
  stage.workers[worker] = {};
  stage.workers[worker].info = {.worker = base::WorkerId(worker),
                                .incarnation = base::Incarnation(incarnation),
                                .pid = 100 + worker};
}

void CoordinatorTest::boot_coordinator() {
  world_.host("coordinator").boot([this](chaos::SimHost& host) {
    return std::make_unique<CoordinatorProcess>(host, options_, journal_, record_, outcome_,
                                                coordinator_);
  });
}

void CoordinatorTest::boot_agent(uint32_t node) {
  world_.host("n" + std::to_string(node)).boot([this, node](chaos::SimHost& host) {
    auto process = std::make_unique<AgentProcess>(host, nodes_.at(node), play_);
    agents_[node] = process.get();
    return process;
  });
}

void CoordinatorTest::start_job() {
  play_.train_to = 0;
  boot_coordinator();
  boot_agent(0);
  boot_agent(1);
  ASSERT_TRUE(until([this] { return record_.plans.size() == 1; }));
  pass(100_ms);
}

void CoordinatorTest::train_to(uint64_t step) {
  play_.train_to = step;
  for (auto& [node, agent] : agents_) {
    if (world_.host("n" + std::to_string(node)).is_alive())
      on_agent(node, [](AgentProcess& a) { a.train(); });
  }
  pass(100_ms);
}

void CoordinatorTest::finish_job() {
  train_to(play_.steps);
  EXPECT_OK(wait_for_end());
  expect_whole_ledger();
}

void CoordinatorTest::expect_whole_ledger() const {
  ASSERT_EQ(record_.steps.size(), play_.steps);
  for (uint64_t s = 1; s <= play_.steps; ++s) EXPECT_EQ(record_.steps[s - 1].step, base::Step(s));
}

Status CoordinatorTest::wait_for_end() {
  if (!until([this] { return outcome_.has_value(); }, 600_s))
    return base::unimplemented("the job does not end");
  return *outcome_;
}

void CoordinatorTest::on_host(const std::string& host, std::function<void()> action) {
  bool called = false;
  world_.host(host).spawn(call([&called, action = std::move(action)] {
    action();
    called = true;
  }));
  CHECK(until([&called] { return called; }, 1_s));
}

void CoordinatorTest::on_agent(uint32_t node, const std::function<void(AgentProcess&)>& action) {
  on_host("n" + std::to_string(node), [this, node, action] { action(*agents_.at(node)); });
}

size_t CoordinatorTest::heard(uint32_t node, MessageType type) const {
  size_t count = 0;
  for (const rpc::Frame& frame : nodes_.at(node).heard)
    count += frame.type == static_cast<uint16_t>(type) ? 1 : 0;
  return count;
}

std::string CoordinatorTest::logged(const std::function<void()>& action) {
  ::testing::internal::CaptureStderr();
  action();
  return ::testing::internal::GetCapturedStderr();
}

}  // namespace perdure::runtime::coordinator
