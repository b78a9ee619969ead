#include "chaos/sim_world.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/sleep.h"
#include "tests/testing/matchers.h"

namespace perdure::chaos {
namespace {

using namespace base::literals;
using base::Address;
using base::Channel;
using base::Nanos;
using base::Status;
using base::StatusCode;
using base::Task;
using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SimWorldTest : public ::testing::Test {
 protected:
  SimWorldTest() : world_({.seed = testing::test_seed()}) {
    for (const char* name : {"a", "b", "c"}) world_.add_host(name);
  }
  SimHost& a() { return world_.host("a"); }
  SimHost& b() { return world_.host("b"); }

  SimWorld world_;
};

TEST_F(SimWorldTest, TimeIsVirtual) {
  EXPECT_OK(world_.run(a(), base::sleep_for(a().clock(), 1000_s)));
  EXPECT_EQ(world_.now(), 1000_s);
  world_.run_until(2000_s);
  EXPECT_EQ(world_.now(), 2000_s);
  EXPECT_EQ(b().clock().unix_ms(), 1'893'456'000'000 + 2'000'000);
  EXPECT_FALSE(world_.run_until([] { return false; }, 3000_s));
}

TEST_F(SimWorldTest, HostsMayHaveIncomparableClocks) {
  SimHost& host = world_.add_host("d", {.clock_offset = 500_s});
  EXPECT_EQ(host.clock().now(), 500_s);
  EXPECT_OK(world_.run(host, base::sleep_until(host.clock(), 510_s)));
  EXPECT_EQ(world_.now(), 10_s);
}

Task<void> log_every_second(base::Clock& clock, std::string name, std::vector<std::string>& log) {
  for (int i = 0; i < 3; ++i) {
    CHECK((co_await base::sleep_for(clock, 1_s)).is_ok());
    log.push_back(name + std::to_string(i));
  }
}

TEST_F(SimWorldTest, EqualTimesKeepTheirOrder) {
  world_.run_until(0_s);  // the boot turns, which come in the order of the hosts
  std::vector<std::string> log;
  b().spawn(log_every_second(b().clock(), "b", log));
  a().spawn(log_every_second(a().clock(), "a", log));
  world_.call_at(2_s, [&] { log.push_back("world"); });
  world_.run_until(10_s);
  EXPECT_THAT(log, ElementsAre("b0", "a0", "world", "b1", "a1", "b2", "a2"));
}

// A process that counts its lives and never ends by itself.
class Counting final : public SimProcess {
 public:
  struct Log {
    int started = 0;
    int destroyed = 0;
    int coroutines_destroyed = 0;
    int ticks = 0;
  };
  Counting(SimHost& host, std::shared_ptr<Log> log) : log_(std::move(log)) {
    ++log_->started;
    CHECK(base::spawn(host.executor(), gate_, tick(host.clock(), log_)).is_ok());
  }
  ~Counting() override {
    ++log_->destroyed;
    EXPECT_EQ(gate_.inside_count(), 0u);
  }

 private:
  struct Probe {
    ~Probe() { ++log->coroutines_destroyed; }
    std::shared_ptr<Log> log;
  };
  static Task<void> tick(base::Clock& clock, std::shared_ptr<Log> log) {
    const Probe probe{log};
    while ((co_await base::sleep_for(clock, 1_s)).is_ok()) ++log->ticks;
  }

  std::shared_ptr<Log> log_;  // the test's, which ends before the world does
  base::Gate gate_;
};

TEST_F(SimWorldTest, AKillTakesCoroutinesAndMemoryAndARestartBootsAgain) {
  const auto log = std::make_shared<Counting::Log>();
  a().boot([log](SimHost& host) { return std::make_unique<Counting>(host, log); });
  world_.call_at(2500_ms, [this] { a().kill(Crash::kPower); });
  world_.run_until(10_s);
  EXPECT_EQ(log->ticks, 2);
  EXPECT_EQ(log->coroutines_destroyed, 1);
  EXPECT_EQ(log->destroyed, 1);
  EXPECT_FALSE(a().is_alive());
  a().restart();
  EXPECT_EQ(a().incarnation(), 2u);
  world_.run_until(15_s);
  EXPECT_EQ(log->started, 2);
  EXPECT_EQ(log->ticks, 7);
}

TEST_F(SimWorldTest, APausedHostDoesNothingAndCatchesUp) {
  const auto log = std::make_shared<Counting::Log>();
  a().boot([log](SimHost& host) { return std::make_unique<Counting>(host, log); });
  world_.run_until(1500_ms);
  a().pause();
  world_.run_until(10_s);
  EXPECT_EQ(log->ticks, 1);
  a().resume();
  world_.run_until(11_s);
  EXPECT_EQ(log->ticks, 3);  // the late one, and the one after it
}

Task<void> die_in_the_middle(SimHost& host, int& lines) {
  auto file = host.files().open("log", base::OpenMode::kAppend);
  CHECK((*file)->append(base::as_byte_span("before ")).is_ok());
  ++lines;
  host.die(Crash::kProcess);
  EXPECT_THAT((*file)->append(base::as_byte_span("after")), StatusIs(StatusCode::kUnavailable));
  ++lines;
  (void)co_await base::sleep_for(host.clock(), 1_s);
  ++lines;
}

TEST_F(SimWorldTest, DyingHasNoEffectAfterThePoint) {
  int lines = 0;
  a().spawn(die_in_the_middle(a(), lines));
  world_.run_until(5_s);
  EXPECT_FALSE(a().is_alive());
  EXPECT_EQ(lines, 2);
  a().restart();
  ASSERT_OK_AND_ASSIGN(const auto text, base::read_file(a().files(), "log", 100));
  EXPECT_EQ(base::as_text(text), "before ");
}

// A server on "b" that takes connections and keeps them; a client on "a".
class StreamTest : public SimWorldTest {
 protected:
  StreamTest() {
    auto listener = b().network().listen({"b", 1});
    CHECK(listener.is_ok());
    listener_ = std::move(*listener);
    b().spawn(accept_into(*listener_, server_));
    const Status status = world_.run(a(), connect_into(a().network(), client_));
    CHECK(status.is_ok()) << status;
    world_.run_until(world_.now() + 1_ms);
    CHECK(server_ != nullptr);
  }

  static Task<void> accept_into(base::Listener& listener, std::unique_ptr<Channel>& out) {
    auto channel = co_await listener.accept(base::kNoDeadline);
    if (channel.is_ok()) out = std::move(*channel);
  }
  static Task<Status> connect_into(base::Network& network, std::unique_ptr<Channel>& out) {
    auto channel = co_await network.connect({"b", 1}, 5_s);
    if (channel.is_ok()) out = std::move(*channel);
    co_return channel.status();
  }
  static Task<Status> connect_status(base::Network& network, Nanos deadline) {
    co_return (co_await network.connect({"b", 1}, deadline)).status();
  }
  static Task<Status> receive(Channel& channel, Nanos deadline) {
    std::array<std::byte, 100> buffer;
    co_return (co_await channel.receive(buffer, deadline)).status();
  }
  Status send(std::string_view text) {
    return world_.run(a(), client_->send(base::as_byte_span(text), world_.now() + 1_s));
  }
  Status client_receives(Nanos timeout) {
    return world_.run(a(), receive(*client_, world_.now() + timeout));
  }

  std::unique_ptr<base::Listener> listener_;
  std::unique_ptr<Channel> client_;
  std::unique_ptr<Channel> server_;
};

TEST_F(StreamTest, AKilledProcessClosesItsConnections) {
  world_.call_at(1_s, [this] { b().kill(Crash::kProcess); });
  EXPECT_THAT(client_receives(10_s), StatusIs(StatusCode::kUnavailable, HasSubstr("closed")));
  EXPECT_LT(world_.now(), 1010_ms);
  EXPECT_THAT(send("x"), StatusIs(StatusCode::kUnavailable));
}

TEST_F(StreamTest, APowerLossIsSilentUntilSomethingIsSent) {
  b().kill(Crash::kPower);
  EXPECT_THAT(client_receives(100_s), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_OK(send("into the void"));
  EXPECT_THAT(client_receives(100_s),
              StatusIs(StatusCode::kUnavailable, HasSubstr("acknowledges nothing")));
  EXPECT_EQ(world_.network().stats().connections_broken, 1u);
}

TEST_F(StreamTest, ARestartedHostResetsOldConnections) {
  b().kill(Crash::kPower);
  b().restart();
  EXPECT_OK(send("hello?"));
  EXPECT_THAT(client_receives(1_s), StatusIs(StatusCode::kUnavailable, HasSubstr("reset")));
}

TEST_F(StreamTest, AShortCutOnlyDelays) {
  world_.network().cut({.from = "a", .to = "b"});
  EXPECT_OK(send("patience"));
  world_.run_until(world_.now() + 3_s);
  world_.network().heal({.from = "a", .to = "b"});
  EXPECT_OK(world_.run(b(), receive(*server_, world_.now() + 10_s)));
}

TEST_F(StreamTest, ALongCutBreaksTheSendingSideOnly) {
  world_.network().partition({"b"});
  EXPECT_OK(send("lost"));
  EXPECT_THAT(client_receives(60_s), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(world_.run(b(), receive(*server_, world_.now() + 60_s)),
              StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(StreamTest, ACutWayBackLetsBytesThroughAndBreaksTheirSender) {
  world_.network().cut({.from = "b", .to = "a"});
  EXPECT_OK(send("one way"));
  EXPECT_OK(world_.run(b(), receive(*server_, world_.now() + 1_s)));
  EXPECT_THAT(client_receives(60_s),
              StatusIs(StatusCode::kUnavailable, HasSubstr("no acknowledgement")));
}

TEST_F(StreamTest, AnAcknowledgementThatComesLateIsEnough) {
  world_.network().cut({.from = "b", .to = "a"});
  EXPECT_OK(send("one way"));
  world_.run_until(world_.now() + 5_s);
  world_.network().heal_all();
  EXPECT_THAT(client_receives(60_s), StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(StreamTest, ConnectingOverACutEndsAtTheDeadlineOrGivesUp) {
  world_.network().partition({"b"});
  std::unique_ptr<Channel> channel;
  EXPECT_THAT(world_.run(a(), connect_into(a().network(), channel)),
              StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(world_.run(a(), connect_status(a().network(), world_.now() + 100_s)),
              StatusIs(StatusCode::kUnavailable, HasSubstr("does not answer")));
}

TEST_F(StreamTest, ADeadHostRefusesToTakePart) {
  base::Network& network = b().network();
  b().kill(Crash::kProcess);
  EXPECT_THAT(network.listen({"b", 9}), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(world_.run(a(), connect_status(a().network(), world_.now() + 5_s)),
              StatusIs(StatusCode::kUnavailable, HasSubstr("refuses")));
}

TEST_F(StreamTest, BandwidthTakesTime) {
  world_.network().set_link({.from = "a", .to = "b"}, {.bytes_per_second = 1000});
  const Nanos start = world_.now();
  EXPECT_OK(send(std::string(2000, 'x')));
  std::vector<std::byte> all(2000);
  EXPECT_OK(world_.run(b(), base::receive_all(*server_, all, start + 10_s)));
  EXPECT_GT(world_.now() - start, 2_s);
  EXPECT_LT(world_.now() - start, 2010_ms);
}

TEST_F(StreamTest, LossReorderingAndDuplicatesCostTimeOnly) {
  world_.network().set_link(
      {.from = "a", .to = "b"},
      {.loss = 0.2, .duplicate = 0.2, .reorder = 0.2, .reorder_delay = 10_ms});
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string part = std::to_string(i) + ",";
    ASSERT_OK(send(part));
    expected += part;
  }
  std::string text(expected.size(), '?');
  ASSERT_OK(world_.run(b(), base::receive_all(*server_, std::as_writable_bytes(std::span(text)),
                                              world_.now() + 600_s)));
  EXPECT_EQ(text, expected);
  world_.run_until(world_.now() + 10_s);
  EXPECT_GT(world_.network().stats().segments_lost, 20u);
  EXPECT_GT(world_.network().stats().duplicates_dropped, 20u);
}

TEST(TraceTest, DifferentEventsGiveDifferentHashes) {
  base::Trace a, b, c;
  for (int i = 0; i < 10000; ++i) {
    a.record(Nanos(i), "event", {1, 2});
    b.record(Nanos(i), "event", {1, 2});
    c.record(Nanos(i), "event", {1, i == 5000 ? 3u : 2u});
  }
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_NE(a.hash(), c.hash());
  EXPECT_EQ(base::first_different_sample(a, b), 2u);
  EXPECT_EQ(base::first_different_sample(a, c), 1u);
}

TEST(SimWorldDeathTest, MistakesInATestAreLoud) {
  SimWorld world({.seed = 1});
  SimHost& host = world.add_host("a");
  EXPECT_DEATH(world.add_host("a"), "two hosts are called a");
  EXPECT_DEATH(world.host("b"), "no host is called b");
  EXPECT_DEATH(host.restart(), "a is alive");
  EXPECT_DEATH((void)world.run(host, base::sleep_for(host.clock(), 10_s), 1_s),
               "task on a does not end");
}

}  // namespace
}  // namespace perdure::chaos
