#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using namespace base::literals;

constexpr uint16_t kPort = 7;

// The function stays where the caller keeps it until the call.
base::Task<void> call(std::function<void()> action) {
  action();
  co_return;
}

base::Task<base::Status> connect_into(base::Network& network, base::Nanos deadline,
                                      std::unique_ptr<base::Channel>& out) {
  const base::Address address("coordinator", kPort);
  auto channel = co_await network.connect(address, deadline);
  if (channel.is_ok()) out = std::move(*channel);
  co_return channel.status();
}

}  // namespace

void Journal::on_ready(base::Rank rank, const rpc::Ready& ready) {
  lines.push_back("ready " + std::to_string(rank.value()) + " " + ready.device);
}

void Journal::on_step(const rpc::StepReport& report) {
  lines.push_back("step " + std::to_string(report.step.value()));
}

void Journal::on_evaluation(const rpc::EvaluationReport& report) {
  lines.push_back("evaluation " + std::to_string(report.step.value()));
}

void Journal::on_finished(base::Rank rank, const rpc::Finished& finished) {
  CHECK_EQ(finished.peak_bytes, 5000u + rank.value());
  lines.push_back("finished " + std::to_string(rank.value()));
}

CoordinatorProcess::CoordinatorProcess(chaos::SimHost& host, const CoordinatorOptions& options,
                                       JobObserver& observer) {
  auto listener = host.network().listen({"coordinator", kPort});
  CHECK(listener.is_ok()) << listener.status();
  coordinator_ = std::make_unique<JobCoordinator>(options, std::move(*listener), host.clock(),
                                                  host.executor(), observer);
  CHECK(base::spawn(host.executor(), gate_, base::store_result(coordinator_->run(), outcome_))
            .is_ok());
}

CoordinatorProcess::~CoordinatorProcess() = default;

rpc::Hello hello_of(uint32_t worker) {
  return {.job_token = "secret", .worker = base::WorkerId(worker), .pid = 100 + worker};
}

rpc::Ready ready_of(uint32_t worker) {
  return {.address = rpc::Payload(worker + 1, static_cast<std::byte>(0xa0 + worker)),
          .device = "fake-" + std::to_string(worker),
          .planned_bytes = 4000 + worker};
}

base::Status Peer::connect() {
  std::unique_ptr<base::Channel> channel;
  RETURN_IF_ERROR(
      world_.run(host_, connect_into(host_.network(), host_.clock().now() + 5_s, channel)));
  channel_ = channel.get();
  messages_ = std::make_unique<rpc::MessageChannel>(std::move(channel));
  return base::Status::ok();
}

base::Status Peer::send_bytes(const std::vector<std::byte>& bytes) {
  return world_.run(host_, channel_->send(bytes, host_.clock().now() + 5_s));
}

base::Result<rpc::Frame> Peer::receive() {
  return world_.run(host_, messages_->receive(host_.clock().now() + 30_s));
}

void CoordinatorTest::start_coordinator(uint32_t ranks) {
  const CoordinatorOptions options{.ranks = ranks,
                                   .job_token = "secret",
                                   .job_toml = "[run]\nsteps = 2\n",
                                   .job_source = "job.toml",
                                   .overrides = {"run.seed=3", "run.steps=4"}};
  for (const char* name : {"coordinator", "n0", "n1", "n2", "stranger"}) world_.add_host(name);
  world_.host("coordinator").boot([&](chaos::SimHost& host) {
    auto process = std::make_unique<CoordinatorProcess>(host, options, journal_);
    process_ = process.get();
    return process;
  });
  workers_.resize(ranks);
}

void CoordinatorTest::join(uint32_t worker) {
  workers_[worker] = make_peer("n" + std::to_string(worker));
  Peer& peer = *workers_[worker];
  ASSERT_OK(peer.connect());
  ASSERT_OK(peer.send(hello_of(worker)));
  ASSERT_OK_AND_ASSIGN(const rpc::Assignment assignment, peer.expect<rpc::Assignment>());
  EXPECT_EQ(assignment.rank.value(), worker);
  EXPECT_EQ(assignment.ranks, workers_.size());
  EXPECT_EQ(assignment.epoch, base::Epoch(1));
  EXPECT_EQ(assignment.job_toml, "[run]\nsteps = 2\n");
  EXPECT_EQ(assignment.job_source, "job.toml");
  EXPECT_EQ(assignment.overrides, (std::vector<std::string>{"run.seed=3", "run.steps=4"}));
}

void CoordinatorTest::join_and_be_ready(uint32_t worker) {
  ASSERT_NO_FATAL_FAILURE(join(worker));
  ASSERT_OK(workers_[worker]->send(ready_of(worker)));
  pass(5_ms);  // until it has arrived
}

void CoordinatorTest::start_job(uint32_t ranks) {
  ASSERT_NO_FATAL_FAILURE(start_coordinator(ranks));
  for (uint32_t w = 0; w < ranks; ++w) ASSERT_NO_FATAL_FAILURE(join_and_be_ready(w));
  for (auto& worker : workers_) {
    ASSERT_OK_AND_ASSIGN(const rpc::Start start, worker->expect<rpc::Start>());
    ASSERT_EQ(start.addresses.size(), ranks);
    for (uint32_t r = 0; r < ranks; ++r) EXPECT_EQ(start.addresses[r], ready_of(r).address) << r;
  }
}

void CoordinatorTest::finish_job() {
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    ASSERT_OK(workers_[w]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5000 + w}));
    pass(5_ms);
  }
  for (auto& worker : workers_) ASSERT_OK(worker->expect<rpc::Goodbye>());
  EXPECT_OK(outcome());
}

base::Status CoordinatorTest::outcome() {
  if (!world_.run_until([this] { return is_over(); }, world_.now() + 600_s))
    return base::unimplemented("the coordinator does not end");
  return *process_->outcome();
}

void CoordinatorTest::on_coordinator(std::function<void(JobCoordinator&)> action) {
  bool called = false;
  JobCoordinator& coordinator = process_->coordinator();
  world_.host("coordinator").spawn(call([&coordinator, &called, action = std::move(action)] {
    action(coordinator);
    called = true;
  }));
  CHECK(world_.run_until([&called] { return called; }, world_.now() + 1_s));
}

}  // namespace perdure::runtime::coordinator
