// One set of cases for every implementation of base/network.h.

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/gate.h"
#include "base/network.h"
#include "base/posix_clock.h"
#include "base/sleep.h"
#include "chaos/sim_world.h"
#include "runtime/transport_tcp/tcp_network.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

// Two hosts, "server" and "client". Which of them a task is started on decides its seams.
class Environment {
 public:
  virtual ~Environment() = default;
  virtual Network& server() = 0;
  virtual Network& client() = 0;
  virtual Clock& clock() = 0;
  virtual std::string server_name() = 0;
  virtual void spawn_on(const char* side, Task<void> task) = 0;
  // Runs all to the end of `task`.
  virtual Status run_on(const char* side, Task<Status> task) = 0;
};

class SimEnvironment final : public Environment {
 public:
  SimEnvironment()
      : world_({.seed = testing::test_seed(), .link = {.loss = 0.02, .duplicate = 0.02}}) {
    world_.add_host("server");
    world_.add_host("client");
  }
  Network& server() override { return world_.host("server").network(); }
  Network& client() override { return world_.host("client").network(); }
  Clock& clock() override { return world_.host("client").clock(); }
  std::string server_name() override { return "server"; }
  void spawn_on(const char* side, Task<void> task) override {
    world_.host(side).spawn(std::move(task));
  }
  Status run_on(const char* side, Task<Status> task) override {
    return world_.run(world_.host(side), std::move(task));
  }

 private:
  chaos::SimWorld world_;
};

class TcpEnvironment final : public Environment {
 public:
  TcpEnvironment() : clock_(context_.get_executor()), network_(context_.get_executor(), clock_) {}
  ~TcpEnvironment() override {
    // Tasks that still wait end before the gate they are in.
    context_.reset_for_destruction();
  }
  Network& server() override { return network_; }
  Network& client() override { return network_; }
  Clock& clock() override { return clock_; }
  std::string server_name() override { return "127.0.0.1"; }
  void spawn_on(const char*, Task<void> task) override {
    CHECK(spawn(context_.get_executor(), gate_, std::move(task)).is_ok());
  }
  Status run_on(const char*, Task<Status> task) override {
    std::optional<Status> result;
    CHECK(spawn(context_.get_executor(), gate_, store_result(std::move(task), result)).is_ok());
    while (!result.has_value()) {
      context_.get().restart();
      context_.get().run_one();
    }
    return *result;
  }

 private:
  // An io_context that can be destroyed before the members declared above it.
  struct Context {
    boost::asio::io_context& get() { return *owned; }
    Executor get_executor() { return owned->get_executor(); }
    void reset_for_destruction() { owned.reset(); }
    std::unique_ptr<boost::asio::io_context> owned = std::make_unique<boost::asio::io_context>(1);
  };
  Gate gate_;
  Context context_;
  PosixClock clock_;
  runtime::transport_tcp::TcpNetwork network_;
};

struct Case {
  const char* name;
  std::function<std::unique_ptr<Environment>()> make;
};

class NetworkConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  NetworkConformanceTest() : environment_(GetParam().make()) {
    auto listener = environment_->server().listen({.host = environment_->server_name(), .port = 0});
    CHECK(listener.is_ok()) << listener.status();
    listener_ = std::move(*listener);
  }
  Nanos in(Nanos delay) { return environment_->clock().now() + delay; }
  Status run(Task<Status> task) { return environment_->run_on("client", std::move(task)); }
  Status run_on_server(Task<Status> task) {
    return environment_->run_on("server", std::move(task));
  }

  // Soon enough for a test of lateness; late enough for one that must not be late.
  static constexpr Nanos kSoon = Nanos(20'000'000);
  static constexpr Nanos kLate = Nanos(20'000'000'000);

  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Listener> listener_;
};

INSTANTIATE_TEST_SUITE_P(
    Networks, NetworkConformanceTest,
    ::testing::Values(Case{"Sim", [] { return std::make_unique<SimEnvironment>(); }},
                      Case{"Tcp", [] { return std::make_unique<TcpEnvironment>(); }}),
    [](const auto& test) { return std::string(test.param.name); });

// Both ends of one connection, and their clock.
struct Pair {
  std::unique_ptr<Channel> client;
  std::unique_ptr<Channel> server;
};

Task<void> accept_into(Listener& listener, std::unique_ptr<Channel>& channel, Nanos deadline) {
  auto accepted = co_await listener.accept(deadline);
  if (accepted.is_ok()) channel = std::move(*accepted);
}

Task<Status> connect_pair(Environment& env, Listener& listener, Pair& pair, Nanos deadline) {
  env.spawn_on("server", accept_into(listener, pair.server, deadline));
  auto connected = co_await env.client().connect(listener.address(), deadline);
  CO_RETURN_IF_ERROR(connected.status());
  pair.client = std::move(*connected);
  while (pair.server == nullptr) CO_RETURN_IF_ERROR(co_await sleep_for(env.clock(), 1_ms));
  co_return Status::ok();
}

Task<void> send_text(Channel& channel, std::string text, Nanos deadline) {
  CHECK((co_await channel.send(as_byte_span(text), deadline)).is_ok());
}

Task<Status> expect_text(Channel& channel, std::string expected, Nanos deadline) {
  std::string text(expected.size(), '?');
  CO_RETURN_IF_ERROR(
      co_await receive_all(channel, std::as_writable_bytes(std::span(text)), deadline));
  EXPECT_EQ(text, expected);
  co_return Status::ok();
}

TEST_P(NetworkConformanceTest, BytesArriveInOrderBothWays) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  EXPECT_FALSE(pair.client->peer().to_string().empty());
  environment_->spawn_on("server", send_text(*pair.server, "from the server", in(kLate)));
  EXPECT_OK(run(expect_text(*pair.client, "from the server", in(kLate))));
  ASSERT_OK(run(pair.client->send(as_byte_span("one"), in(kLate))));
  ASSERT_OK(run(pair.client->send(as_byte_span("two"), in(kLate))));
  ASSERT_OK(run(pair.client->send({}, in(kLate))));
  EXPECT_OK(run_on_server(expect_text(*pair.server, "onetwo", in(kLate))));
}

Task<void> send_pattern(Channel& channel, size_t size_bytes, Nanos deadline) {
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; ++i) bytes[i] = static_cast<std::byte>(i * 31 >> 8 ^ i);
  CHECK((co_await channel.send(bytes, deadline)).is_ok());
}

Task<Status> check_pattern(Channel& channel, size_t size_bytes, Nanos deadline) {
  std::vector<std::byte> bytes(size_bytes);
  CO_RETURN_IF_ERROR(co_await receive_all(channel, bytes, deadline));
  for (size_t i = 0; i < size_bytes; ++i) {
    if (bytes[i] != static_cast<std::byte>(i * 31 >> 8 ^ i)) co_return data_loss("wrong byte");
  }
  co_return Status::ok();
}

TEST_P(NetworkConformanceTest, MoreThanTheWindowGetsThrough) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  environment_->spawn_on("server", send_pattern(*pair.server, 9_MiB, in(kLate)));
  EXPECT_OK(run(check_pattern(*pair.client, 9_MiB, in(kLate))));
}

TEST_P(NetworkConformanceTest, ASendToAPeerThatDoesNotReadEndsAtItsDeadline) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  const std::vector<std::byte> much(64_MiB);
  EXPECT_THAT(run(pair.client->send(much, in(kSoon))), StatusIs(StatusCode::kDeadlineExceeded));
}

Task<Status> receive_status(Channel& channel, Nanos deadline) {
  std::array<std::byte, 16> buffer;
  co_return (co_await channel.receive(buffer, deadline)).status();
}

TEST_P(NetworkConformanceTest, ALateReceiveLosesNothing) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  EXPECT_THAT(run(receive_status(*pair.client, in(kSoon))),
              StatusIs(StatusCode::kDeadlineExceeded));
  environment_->spawn_on("server", send_text(*pair.server, "late", in(kLate)));
  EXPECT_OK(run(expect_text(*pair.client, "late", in(kLate))));
}

TEST_P(NetworkConformanceTest, WhatWasSentBeforeACloseIsReceivedThenThePeerIsGone) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  environment_->spawn_on("server", send_text(*pair.server, "farewell", in(kLate)));
  EXPECT_OK(run(expect_text(*pair.client, "fare", in(kLate))));
  pair.server->close();
  pair.server->close();
  EXPECT_OK(run(expect_text(*pair.client, "well", in(kLate))));
  EXPECT_THAT(run(receive_status(*pair.client, in(kLate))), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(run(receive_status(*pair.client, in(kLate))), StatusIs(StatusCode::kUnavailable));
}

TEST_P(NetworkConformanceTest, AStreamCutInsideAMessageIsDataLoss) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  environment_->spawn_on("server", send_text(*pair.server, "half", in(kLate)));
  EXPECT_OK(run(expect_text(*pair.client, "ha", in(kLate))));
  pair.server->close();
  EXPECT_THAT(run(expect_text(*pair.client, "lf of it", in(kLate))),
              StatusIs(StatusCode::kDataLoss, HasSubstr("2 of 8")));
}

Task<Status> send_until_error(Channel& channel, Clock& clock, Nanos deadline) {
  const std::vector<std::byte> bytes(1_KiB);
  while (true) {
    CO_RETURN_IF_ERROR(co_await channel.send(bytes, deadline));
    CO_RETURN_IF_ERROR(co_await sleep_for(clock, 1_ms));
  }
}

TEST_P(NetworkConformanceTest, SendingToAClosedPeerFails) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  pair.server.reset();
  EXPECT_THAT(run(send_until_error(*pair.client, environment_->clock(), in(kLate))),
              StatusIs(StatusCode::kUnavailable));
}

Task<void> close_soon(Channel& channel, Clock& clock) {
  CHECK((co_await sleep_for(clock, 5_ms)).is_ok());
  channel.close();
}

TEST_P(NetworkConformanceTest, CloseCancelsWhatWaits) {
  Pair pair;
  ASSERT_OK(run(connect_pair(*environment_, *listener_, pair, in(kLate))));
  environment_->spawn_on("client", close_soon(*pair.client, environment_->clock()));
  EXPECT_THAT(run(receive_status(*pair.client, in(kLate))), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(run(receive_status(*pair.client, in(kLate))), StatusIs(StatusCode::kCancelled));
  EXPECT_THAT(run(pair.client->send(as_byte_span("x"), in(kLate))),
              StatusIs(StatusCode::kCancelled));
}

Task<Status> accept_status(Listener& listener, Nanos deadline) {
  co_return (co_await listener.accept(deadline)).status();
}

TEST_P(NetworkConformanceTest, AcceptHasADeadlineAndEndsWithItsListener) {
  EXPECT_THAT(run_on_server(accept_status(*listener_, in(kSoon))),
              StatusIs(StatusCode::kDeadlineExceeded));
  listener_->close();
  listener_->close();
  EXPECT_THAT(run_on_server(accept_status(*listener_, in(kLate))),
              StatusIs(StatusCode::kCancelled));
}

Task<Status> connect_status(Network& network, Address address, Nanos deadline) {
  co_return (co_await network.connect(address, deadline)).status();
}

TEST_P(NetworkConformanceTest, NobodyListeningIsUnavailable) {
  const Address address = listener_->address();
  listener_->close();
  EXPECT_THAT(run(connect_status(environment_->client(), address, in(kLate))),
              StatusIs(StatusCode::kUnavailable));
}

TEST_P(NetworkConformanceTest, APortIsTakenOnceAndFreeAgainAfterClose) {
  const Address address = listener_->address();
  EXPECT_GT(address.port, 0);
  EXPECT_THAT(environment_->server().listen(address), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_THAT(environment_->server().listen({.host = "203.0.113.7", .port = 0}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(environment_->server().listen({.host = "no such host", .port = 0}),
              StatusIs(StatusCode::kInvalidArgument));
  listener_->close();
  EXPECT_OK(environment_->server().listen(address));
}

TEST_P(NetworkConformanceTest, AnUnknownNameIsNotFound) {
  EXPECT_THAT(run(connect_status(environment_->client(),
                                 {.host = "no-such-host.invalid", .port = 1}, in(kLate))),
              StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace perdure::base
