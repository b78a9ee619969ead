// The real Worker on a simulated host, and a coordinator that the test plays by hand: all that
// happens before the engine runs.

#include "runtime/worker/worker.h"

#include "chaos/sim_world.h"
#include "kernels/reference/reference_device.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::worker {
namespace {

using namespace base::literals;
using base::Status;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint16_t kPort = 7;

constexpr const char* kJob = R"([model]
family = "llama"
layers = 2
width = 32
heads = 2
vocabulary = 256
context = 16
[data]
synthetic_tokens = 4096
[batch]
micro_batches = 4
[run]
device = "reference"
)";

// What the fakes are to do, and what they saw. The test's: outlives the worker.
struct Script {
  Status fabric_made;
  Status connected = base::unavailable("no way to rank 1");
  std::vector<FabricRequest> requests;
  std::vector<std::string> devices;
  std::vector<std::vector<std::byte>> addresses;
  int closed = 0;
};

// Connects to nobody.
class FakeFabric : public collective::MeshFabric {
 public:
  FakeFabric(const FabricRequest& request, Script& script) : request_(request), script_(script) {}
  base::Rank rank() const override { return request_.rank; }
  uint32_t ranks() const override { return request_.ranks; }
  collective::Ticket post_send(base::Rank, collective::Tag, std::span<const std::byte>) override {
    return {};
  }
  collective::Ticket post_receive(base::Rank, collective::Tag, std::span<std::byte>) override {
    return {};
  }
  Status wait(collective::Ticket, collective::Timeout) override { return script_.connected; }
  void abort(Status) override {}
  std::vector<std::byte> address() const override { return {std::byte{0xaa}, std::byte{0xbb}}; }
  Status connect(std::span<const std::vector<std::byte>> addresses, collective::Timeout) override {
    script_.addresses.assign(addresses.begin(), addresses.end());
    return script_.connected;
  }
  void close() override { ++script_.closed; }

 private:
  const FabricRequest request_;
  Script& script_;
};

WorkerServices services_of(chaos::SimHost& host, Script& script) {
  return {.network = host.network(),
          .clock = host.clock(),
          .executor = host.executor(),
          .make_device = [&script](std::string_view name, const kernels::DeviceOptions& options)
              -> base::Result<std::unique_ptr<kernels::Device>> {
            script.devices.emplace_back(name);
            if (name != "reference")
              return base::invalid_argument("no device " + std::string(name));
            return kernels::reference::make_reference_device(options);
          },
          .make_fabric = [&script](const FabricRequest& request)
              -> base::Result<std::unique_ptr<collective::MeshFabric>> {
            script.requests.push_back(request);
            if (!script.fabric_made.is_ok()) return script.fabric_made;
            return std::unique_ptr<collective::MeshFabric>(
                std::make_unique<FakeFabric>(request, script));
          }};
}

class WorkerProcess : public chaos::SimProcess {
 public:
  WorkerProcess(chaos::SimHost& host, Script& script)
      : worker_({.coordinator = base::Address("coordinator", kPort),
                 .worker = base::WorkerId(5),
                 .job_token = "secret",
                 .pid = 99},
                services_of(host, script)) {
    CHECK(base::spawn(host.executor(), gate_, base::store_result(worker_.run(), outcome_)).is_ok());
  }
  const std::optional<Status>& outcome() const { return outcome_; }

 private:
  Worker worker_;
  base::Gate gate_;
  std::optional<Status> outcome_;
};

base::Task<Status> accept_into(base::Listener& listener, base::Nanos deadline,
                               std::unique_ptr<rpc::MessageChannel>& out) {
  auto channel = co_await listener.accept(deadline);
  if (channel.is_ok()) out = std::make_unique<rpc::MessageChannel>(std::move(*channel));
  co_return channel.status();
}

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() : world_({.seed = testing::test_seed()}) {
    world_.add_host("coordinator");
    world_.add_host("worker");
  }

  void start_worker() {
    world_.host("worker").boot([this](chaos::SimHost& host) {
      auto process = std::make_unique<WorkerProcess>(host, script_);
      process_ = process.get();
      return process;
    });
  }
  // Up to the Hello.
  void meet_worker() {
    chaos::SimHost& host = world_.host("coordinator");
    ASSERT_OK_AND_ASSIGN(listener_, host.network().listen({"coordinator", kPort}));
    start_worker();
    ASSERT_OK(world_.run(host, accept_into(*listener_, world_.now() + 5_s, channel_)));
    ASSERT_OK_AND_ASSIGN(const rpc::Hello hello, expect<rpc::Hello>());
    EXPECT_EQ(hello.job_token, "secret");
    EXPECT_EQ(hello.worker, base::WorkerId(5));
    EXPECT_EQ(hello.pid, 99u);
  }
  // Up to the assignment of a job that is `kJob` with overrides. One rank unless they say more.
  void assign(const std::vector<std::string>& overrides = {}, uint32_t ranks = 1) {
    ASSERT_NO_FATAL_FAILURE(meet_worker());
    ASSERT_OK(send(rpc::Assignment{.rank = base::Rank(ranks - 1),
                                   .ranks = ranks,
                                   .epoch = base::Epoch(3),
                                   .job_toml = kJob,
                                   .job_source = "job.toml",
                                   .overrides = overrides}));
  }
  template <typename Message>
  Status send(const Message& message) {
    return send_frame(static_cast<uint16_t>(Message::kType), message.encode());
  }
  Status send_frame(uint16_t type, const rpc::Payload& payload) {
    return world_.run(world_.host("coordinator"),
                      channel_->send(type, payload, world_.now() + 5_s));
  }
  base::Result<rpc::Frame> receive(base::Nanos timeout = 30_s) {
    return world_.run(world_.host("coordinator"), channel_->receive(world_.now() + timeout));
  }
  template <typename Message>
  base::Result<Message> expect() {
    ASSIGN_OR_RETURN(const rpc::Frame frame, receive());
    if (frame.type != static_cast<uint16_t>(Message::kType))
      return base::internal("a message of type " + std::to_string(frame.type));
    return Message::decode(frame.payload);
  }
  Status outcome() {
    if (!world_.run_until([this] { return process_->outcome().has_value(); }, world_.now() + 600_s))
      return base::unimplemented("the worker does not end");
    return *process_->outcome();
  }
  // It told the coordinator the error with which it ended, and then left.
  void expect_failed(StatusCode code, const ::testing::Matcher<const std::string&>& text) {
    ASSERT_OK_AND_ASSIGN(const rpc::Failed failed, expect<rpc::Failed>());
    EXPECT_EQ(failed.code, static_cast<uint32_t>(code)) << failed.text;
    EXPECT_THAT(failed.text, text);
    EXPECT_THAT(outcome(), StatusIs(code, failed.text));
    EXPECT_THAT(receive(), StatusIs(StatusCode::kUnavailable));
  }
  // It left without a word.
  void expect_silent_end(StatusCode code, const ::testing::Matcher<const std::string&>& text) {
    EXPECT_THAT(outcome(), StatusIs(code, text));
    EXPECT_THAT(receive(), StatusIs(StatusCode::kUnavailable));
    EXPECT_TRUE(script_.devices.empty());
  }

  Script script_;
  chaos::SimWorld world_;
  WorkerProcess* process_ = nullptr;  // of the world
  std::unique_ptr<base::Listener> listener_;
  std::unique_ptr<rpc::MessageChannel> channel_;
};

TEST_F(WorkerTest, ACoordinatorThatIsNotThereIsUnavailable) {
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable));
}

TEST_F(WorkerTest, ACoordinatorThatCannotBeReachedIsGivenUp) {
  world_.network().partition({"worker"});
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_LT(world_.now(), 11_s);
}

TEST_F(WorkerTest, WithoutAnAssignmentItLeaves) {
  ASSERT_NO_FATAL_FAILURE(meet_worker());
  expect_silent_end(StatusCode::kDeadlineExceeded, ::testing::_);
  EXPECT_LT(world_.now(), 11_s);
}

TEST_F(WorkerTest, ACoordinatorThatClosesEndsIt) {
  ASSERT_NO_FATAL_FAILURE(meet_worker());
  channel_->close();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable));
  EXPECT_LT(world_.now(), 1_s);
}

TEST_F(WorkerTest, AnotherMessageInPlaceOfTheAssignmentIsToldToNobody) {
  ASSERT_NO_FATAL_FAILURE(meet_worker());
  ASSERT_OK(send(rpc::Goodbye{}));
  expect_silent_end(StatusCode::kDataLoss, HasSubstr("type 9 where 2 was expected"));
}

TEST_F(WorkerTest, AnAssignmentThatCannotBeReadIsToldToNobody) {
  ASSERT_NO_FATAL_FAILURE(meet_worker());
  ASSERT_OK(send_frame(2, rpc::Payload(10, std::byte{1})));
  expect_silent_end(StatusCode::kDataLoss, ::testing::_);
}

TEST_F(WorkerTest, ABadJobIsToldToTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(meet_worker());
  ASSERT_OK(send(
      rpc::Assignment{.ranks = 1, .job_toml = "[model]\nlayerz = 2\n", .job_source = "job.toml"}));
  expect_failed(StatusCode::kInvalidArgument, AllOf(HasSubstr("job.toml"), HasSubstr("layerz")));
  EXPECT_TRUE(script_.devices.empty());
}

TEST_F(WorkerTest, ABadOverrideIsToldToTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(assign({"run.steps=-1"}));
  expect_failed(StatusCode::kInvalidArgument, HasSubstr("run.steps"));
}

TEST_F(WorkerTest, AnUnknownDeviceIsToldToTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(assign({"run.device=abacus"}));
  expect_failed(StatusCode::kInvalidArgument, HasSubstr("abacus"));
  EXPECT_THAT(script_.devices, ::testing::ElementsAre("abacus"));
  EXPECT_TRUE(script_.requests.empty());
}

TEST_F(WorkerTest, AFabricThatCannotBeMadeIsToldToTheCoordinator) {
  script_.fabric_made = base::resource_exhausted("no more sockets");
  ASSERT_NO_FATAL_FAILURE(assign({"layout.pipelines=2", "run.transport=tcp"}, 2));
  expect_failed(StatusCode::kResourceExhausted, HasSubstr("no more sockets"));
  ASSERT_EQ(script_.requests.size(), 1u);
  EXPECT_EQ(script_.requests[0].rank, base::Rank(1));
  EXPECT_EQ(script_.requests[0].ranks, 2u);
  EXPECT_EQ(script_.requests[0].epoch, base::Epoch(3));
  EXPECT_EQ(script_.requests[0].transport, job::Transport::kTcp);
}

TEST_F(WorkerTest, MissingDataIsToldToTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(assign({"data.synthetic_tokens=0", "data.path=no/such/folder"}));
  expect_failed(StatusCode::kNotFound, HasSubstr("no/such/folder"));
  EXPECT_GE(script_.closed, 1);
}

TEST_F(WorkerTest, AnAssignmentThatDoesNotFitTheJobIsToldToTheCoordinator) {
  ASSERT_NO_FATAL_FAILURE(assign({}, 2));
  expect_failed(StatusCode::kInvalidArgument, HasSubstr("for 2 ranks, the job has 1"));
  EXPECT_TRUE(script_.requests.empty());
}

class ReadyWorkerTest : public WorkerTest {
 protected:
  // Up to Ready, as rank 1 of 2.
  void make_ready() {
    ASSERT_NO_FATAL_FAILURE(assign({"layout.pipelines=2"}, 2));
    ASSERT_OK_AND_ASSIGN(const rpc::Ready ready, expect<rpc::Ready>());
    EXPECT_EQ(ready.address, (rpc::Payload{std::byte{0xaa}, std::byte{0xbb}}));
    EXPECT_THAT(ready.device, HasSubstr("reference"));
    EXPECT_GT(ready.planned_bytes, uint64_t{1} << 20);
    EXPECT_FALSE(process_->outcome().has_value());
  }
};

TEST_F(ReadyWorkerTest, ConnectsToTheAddressesOfTheStart) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  const rpc::Start start{.addresses = {{std::byte{1}}, {std::byte{2}, std::byte{3}}}};
  ASSERT_OK(send(start));
  expect_failed(StatusCode::kUnavailable, HasSubstr("no way to rank 1"));
  EXPECT_EQ(script_.addresses, start.addresses);
  EXPECT_GE(script_.closed, 1);
}

TEST_F(ReadyWorkerTest, AStartThatLacksAddressesIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  ASSERT_OK(send(rpc::Start{.addresses = {{std::byte{1}}}}));
  expect_failed(StatusCode::kDataLoss, HasSubstr("start lacks addresses"));
  EXPECT_TRUE(script_.addresses.empty());
}

TEST_F(ReadyWorkerTest, AnotherMessageInPlaceOfTheStartIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  ASSERT_OK(send(rpc::Goodbye{}));
  expect_failed(StatusCode::kDataLoss, HasSubstr("type 9 where 4 was expected"));
}

TEST_F(ReadyWorkerTest, AStartThatCannotBeReadIsRefused) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  ASSERT_OK(send_frame(4, rpc::Payload(3, std::byte{0xff})));
  expect_failed(StatusCode::kDataLoss, ::testing::_);
}

TEST_F(ReadyWorkerTest, WithoutAStartItGivesUpInTheEnd) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  world_.run_until(119_s);
  EXPECT_FALSE(process_->outcome().has_value());
  expect_failed(StatusCode::kDeadlineExceeded, ::testing::_);
  EXPECT_LT(world_.now(), 121_s);
}

TEST_F(ReadyWorkerTest, ACoordinatorThatClosesBeforeTheStartEndsIt) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  channel_->close();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable));
  EXPECT_GE(script_.closed, 1);
}

TEST_F(ReadyWorkerTest, ACoordinatorThatDiesBeforeTheStartEndsIt) {
  ASSERT_NO_FATAL_FAILURE(make_ready());
  world_.host("coordinator").kill(chaos::Crash::kProcess);
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable));
  EXPECT_LT(world_.now(), 1_s);
}

}  // namespace
}  // namespace perdure::runtime::worker
