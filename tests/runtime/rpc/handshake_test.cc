#include "runtime/rpc/handshake.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "base/sleep.h"
#include "chaos/sim_world.h"
#include "runtime/rpc/wire.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::rpc {
namespace {

using namespace base::literals;
using base::Nanos;
using base::Result;
using base::Status;
using base::StatusCode;
using base::Task;
using chaos::SimHost;
using chaos::SimWorld;
using ::perdure::testing::StatusIs;
using ::perdure::testing::test_seed;
using ::testing::HasSubstr;

constexpr PeerIdentity kWorker7 = {
    .role = PeerRole::kWorker, .number = 7, .incarnation = base::Incarnation(3)};
const std::string kSecret = "a secret of this job";

// Keeps what is sent.
class RecordingChannel final : public base::Channel {
 public:
  RecordingChannel(std::unique_ptr<base::Channel> channel, std::vector<std::byte>& sent)
      : channel_(std::move(channel)), sent_(sent) {}
  Task<Status> send(base::ByteSpan bytes, Nanos deadline) override {
    sent_.insert(sent_.end(), bytes.begin(), bytes.end());
    co_return co_await channel_->send(bytes, deadline);
  }
  Task<Result<size_t>> receive(base::MutableByteSpan buffer, Nanos deadline) override {
    co_return co_await channel_->receive(buffer, deadline);
  }
  void close() override { channel_->close(); }
  base::Address peer() const override { return channel_->peer(); }

 private:
  std::unique_ptr<base::Channel> channel_;
  std::vector<std::byte>& sent_;
};

// A server that takes any number of clients, and what it made of each.
class Server {
 public:
  explicit Server(SimHost& host, std::string secret) : host_(host), secret_(std::move(secret)) {
    host.spawn(listen());
  }
  const std::vector<Result<PeerIdentity>>& results() const { return results_; }
  // All connections get the same challenge, so that a recorded proof is right again.
  void repeat_nonces() { repeats_ = true; }
  const std::vector<Nanos>& times() const { return times_; }

 private:
  Task<void> listen() {
    const base::Address address("", 5);
    auto listener = host_.network().listen(address);
    CHECK(listener.is_ok());
    while (true) {
      auto channel = co_await (*listener)->accept(base::kNoDeadline);
      if (!channel.is_ok()) co_return;
      host_.spawn(meet(std::move(channel).value()));
    }
  }
  Task<void> meet(std::unique_ptr<base::Channel> channel) {
    MessageChannel messages(std::move(channel));
    if (repeats_) nonces_ = base::SeededRandom(5);
    auto peer = co_await accept_handshake(messages, secret_, nonces_, host_.clock());
    results_.push_back(std::move(peer));
    times_.push_back(host_.clock().now());
    if (results_.back().is_ok()) (void)co_await messages.receive(base::kNoDeadline);
  }

  SimHost& host_;
  const std::string secret_;
  base::SeededRandom nonces_{5};
  bool repeats_ = false;
  std::vector<Result<PeerIdentity>> results_;
  std::vector<Nanos> times_;
};

class HandshakeTest : public ::testing::Test {
 protected:
  HandshakeTest()
      : world_(std::make_unique<SimWorld>(
            chaos::SimOptions{.seed = test_seed(), .link = {.loss = 0.01, .duplicate = 0.01}})) {
    world_->add_host("server");
    world_->add_host("client");
    server_ = std::make_unique<Server>(world_->host("server"), kSecret);
  }
  ~HandshakeTest() override { world_.reset(); }  // coroutines of the server before the server

  static Task<Result<std::unique_ptr<base::Channel>>> connect(SimHost& host) {
    const base::Address address("server", 5);
    co_return co_await host.network().connect(address, base::kNoDeadline);
  }
  static Task<Status> offer(SimHost& host, std::string secret, PeerIdentity self,
                            std::vector<std::byte>& sent) {
    base::SeededRandom nonces(host.clock().now().count());
    CO_ASSIGN_OR_RETURN(auto channel, co_await connect(host));
    MessageChannel messages(std::make_unique<RecordingChannel>(std::move(channel), sent));
    co_return co_await offer_handshake(messages, secret, self, nonces, host.clock());
  }
  // Sends bytes and then reads until the server closes, or `patience` is over.
  static Task<Status> throw_bytes(SimHost& host, std::vector<std::byte> bytes, Nanos patience) {
    CO_ASSIGN_OR_RETURN(auto channel, co_await connect(host));
    if (!bytes.empty()) CO_RETURN_IF_ERROR(co_await channel->send(bytes, base::kNoDeadline));
    const Nanos deadline = host.clock().now() + patience;
    std::array<std::byte, 64> buffer;
    while (true) {
      const auto count = co_await channel->receive(buffer, deadline);
      if (!count.is_ok()) co_return count.status();
    }
  }

  Status offer(const std::string& secret, PeerIdentity self = kWorker7) {
    SimHost& client = world_->host("client");
    sent_.clear();
    return world_->run(client, offer(client, secret, self, sent_));
  }
  // What the server makes of these bytes from a client that then leaves.
  Result<PeerIdentity> server_on(const std::vector<std::byte>& bytes) {
    const size_t before = server_->results().size();
    SimHost& client = world_->host("client");
    (void)world_->run(client, throw_bytes(client, bytes, 1_s));
    world_->run_until(world_->now() + 6_s);
    CHECK_EQ(server_->results().size(), before + 1);
    return server_->results().back();
  }

  std::unique_ptr<SimWorld> world_;
  std::unique_ptr<Server> server_;
  std::vector<std::byte> sent_;
};

TEST_F(HandshakeTest, WhoKnowsTheSecretIsLetIn) {
  ASSERT_OK(offer(kSecret));
  ASSERT_EQ(server_->results().size(), 1u);
  ASSERT_OK(server_->results()[0]);
  EXPECT_EQ(server_->results()[0]->role, PeerRole::kWorker);
  EXPECT_EQ(server_->results()[0]->number, 7u);
  EXPECT_EQ(server_->results()[0]->incarnation, base::Incarnation(3));
  EXPECT_THAT(std::string(base::as_text(sent_)), ::testing::Not(HasSubstr(kSecret)));
}

TEST_F(HandshakeTest, AWrongSecretIsToldNothing) {
  EXPECT_THAT(offer("another secret"), StatusIs(StatusCode::kUnavailable));
  ASSERT_EQ(server_->results().size(), 1u);
  EXPECT_THAT(server_->results()[0], StatusIs(StatusCode::kInvalidArgument, HasSubstr("secret")));
}

TEST_F(HandshakeTest, NoSecretIsNoSecret) {
  EXPECT_THAT(offer(""), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no secret")));
  world_.reset();
  world_ = std::make_unique<SimWorld>(chaos::SimOptions{.seed = test_seed()});
  world_->add_host("server");
  world_->add_host("client");
  server_ = std::make_unique<Server>(world_->host("server"), "");
  EXPECT_THAT(offer(kSecret), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(server_->results()[0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no secret")));
}

TEST_F(HandshakeTest, AnUnknownRoleIsRefused) {
  EXPECT_THAT(offer(kSecret, {.role = static_cast<PeerRole>(9)}),
              StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(server_->results()[0], StatusIs(StatusCode::kInvalidArgument, HasSubstr("role 9")));
}

TEST_F(HandshakeTest, AProofIsGoodOnce) {
  ASSERT_OK(offer(kSecret));
  const std::vector<std::byte> replay = sent_;
  EXPECT_THAT(server_on(replay), StatusIs(StatusCode::kInvalidArgument, HasSubstr("secret")));
}

// With the challenge of the recorded run again, all of the bytes are needed.
TEST_F(HandshakeTest, EveryCutIsRefused) {
  server_->repeat_nonces();
  ASSERT_OK(offer(kSecret));
  const std::vector<std::byte> good = sent_;
  ASSERT_OK(server_on(good));
  for (size_t cut = 0; cut < good.size(); ++cut) {
    const auto result = server_on({good.begin(), good.begin() + static_cast<ptrdiff_t>(cut)});
    EXPECT_FALSE(result.is_ok()) << cut;
    EXPECT_NE(result.status().code(), StatusCode::kInternal);
  }
}

TEST_F(HandshakeTest, EveryFlippedBitIsRefused) {
  server_->repeat_nonces();
  ASSERT_OK(offer(kSecret));
  const std::vector<std::byte> good = sent_;
  for (size_t bit = 0; bit < good.size() * 8; bit += 3) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(server_on(bad).is_ok()) << bit;
  }
}

// Fields that a checksum does not protect from their sender: what was said is what is proved.
TEST_F(HandshakeTest, WhoClaimsToBeAnotherFails) {
  server_->repeat_nonces();
  ASSERT_OK(offer(kSecret));
  const std::vector<std::byte> mine = sent_;
  ASSERT_OK_AND_ASSIGN(const FrameHeader header,
                       decode_header(std::span(mine).first(kFrameHeaderBytes)));
  const size_t hello_bytes = kFrameHeaderBytes + header.payload_bytes;
  for (size_t field = 0; field < 13; ++field) {  // role u8, number u32, incarnation u64
    Frame hello{.type = 1,
                .payload = {mine.begin() + kFrameHeaderBytes,
                            mine.begin() + static_cast<ptrdiff_t>(hello_bytes)}};
    hello.payload[field] ^= std::byte{1};
    std::vector<std::byte> forged = encode_frame(hello);
    forged.insert(forged.end(), mine.begin() + static_cast<ptrdiff_t>(hello_bytes), mine.end());
    EXPECT_THAT(server_on(forged), StatusIs(StatusCode::kInvalidArgument)) << field;
  }
}

TEST_F(HandshakeTest, AnotherVersionAndAnotherProtocolAreDataLoss) {
  ASSERT_OK(offer(kSecret));
  std::vector<std::byte> other = sent_;
  other[4] = std::byte{1};
  EXPECT_THAT(server_on(other), StatusIs(StatusCode::kDataLoss, HasSubstr("version 1")));
  const base::ByteSpan http =
      base::as_byte_span("GET / HTTP/1.1\r\nHost: a.example.org\r\n\r\n\r\n");
  EXPECT_THAT(server_on({http.begin(), http.end()}), StatusIs(StatusCode::kDataLoss));
}

TEST_F(HandshakeTest, AHugeHelloIsRefusedByItsHeader) {
  const Frame hello{.type = 1, .payload = std::vector<std::byte>(kHandshakeBytesMax + 1)};
  EXPECT_THAT(server_on(encode_frame(hello)), StatusIs(StatusCode::kDataLoss, HasSubstr("257")));
  std::vector<std::byte> huge = encode_frame(hello);
  for (size_t i = 8; i < 12; ++i) huge[i] = std::byte{0xff};
  EXPECT_THAT(server_on(huge), StatusIs(StatusCode::kDataLoss, HasSubstr("4294967295")));
}

TEST_F(HandshakeTest, AnotherMessageIsNoHello) {
  EXPECT_THAT(server_on(encode_frame({.type = 18})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("type 18")));
  EXPECT_THAT(server_on(encode_frame({.type = 1})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a handshake")));
  const Frame junk{.type = 1, .payload = std::vector<std::byte>(49, std::byte{1})};
  EXPECT_THAT(server_on(encode_frame(junk)), StatusIs(StatusCode::kInvalidArgument));
}

// A silent stranger holds nobody up and is sent away after the timeout.
TEST_F(HandshakeTest, SilenceTimesOutAndDisturbsNobody) {
  SimHost& client = world_->host("client");
  std::optional<Status> stranger;
  client.spawn(base::store_result(throw_bytes(client, {}, 60_s), stranger));
  ASSERT_OK(offer(kSecret));
  EXPECT_LT(world_->now(), 1_s);
  world_->run_until(10_s);
  ASSERT_EQ(server_->results().size(), 2u);
  EXPECT_THAT(server_->results()[1], StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_GE(server_->times()[1], kHandshakeTimeout);
  EXPECT_LT(server_->times()[1], kHandshakeTimeout + 1_s);
  ASSERT_TRUE(stranger.has_value());
  EXPECT_THAT(*stranger, StatusIs(StatusCode::kUnavailable));
}

// A byte now and then does not buy more time.
Task<void> drip(SimHost& host) {
  const base::Address address("server", 5);
  auto channel = co_await host.network().connect(address, base::kNoDeadline);
  const std::vector<std::byte> bytes = encode_frame({.type = 1});
  for (size_t i = 0; i < bytes.size(); ++i) {
    const Status sent =
        co_await (*channel)->send(std::span(bytes).subspan(i, 1), base::kNoDeadline);
    if (!sent.is_ok()) co_return;
    (void)co_await base::sleep_for(host.clock(), 1_s);
  }
}

TEST_F(HandshakeTest, TheTimeoutIsForAllOfIt) {
  SimHost& client = world_->host("client");
  client.spawn(drip(client));
  world_->run_until(7_s);
  ASSERT_EQ(server_->results().size(), 1u);
  EXPECT_THAT(server_->results()[0], StatusIs(StatusCode::kDeadlineExceeded));
}

TEST_F(HandshakeTest, RandomBytesNeverGetIn) {
  base::SeededRandom random(test_seed());
  ASSERT_OK(offer(kSecret));
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> bytes(random.uniform_int(200));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
    if (round % 2 == 0) {  // a good frame around them
      bytes = encode_frame(
          {.type = static_cast<uint16_t>(random.uniform_int(5)), .payload = std::move(bytes)});
    }
    EXPECT_FALSE(server_on(bytes).is_ok());
  }
  EXPECT_OK(offer(kSecret)) << "after all of that";
}

// Servers that do not know the secret: they answer with zeros, or with the client's own proof.
enum class Answer { kZeros, kEcho, kClose, kSilence };

Task<void> pretend(SimHost& host, Answer answer) {
  const base::Address address("", 6);
  auto listener = host.network().listen(address);
  auto channel = co_await (*listener)->accept(base::kNoDeadline);
  MessageChannel messages(std::move(channel).value());
  (void)co_await messages.receive(base::kNoDeadline);
  std::vector<std::byte> bytes(32);
  Frame challenge{.type = 2, .payload = to_bytes(bytes)};
  (void)co_await messages.send(std::move(challenge), base::kNoDeadline);
  auto proof = co_await messages.receive(base::kNoDeadline);
  if (answer == Answer::kClose || !proof.is_ok()) co_return;
  if (answer != Answer::kSilence) {
    Frame welcome{.type = 4, .payload = answer == Answer::kEcho ? proof->payload : to_bytes(bytes)};
    (void)co_await messages.send(std::move(welcome), base::kNoDeadline);
  }
  (void)co_await messages.receive(base::kNoDeadline);
}

Task<Status> meet_pretender(SimHost& host) {
  const base::Address address("server", 6);
  CO_ASSIGN_OR_RETURN(auto channel, co_await host.network().connect(address, base::kNoDeadline));
  MessageChannel messages(std::move(channel));
  base::SeededRandom nonces(1);
  co_return co_await offer_handshake(messages, kSecret, kWorker7, nonces, host.clock());
}

TEST_F(HandshakeTest, AServerMustKnowTheSecretToo) {
  for (const auto& [answer, code] : {std::pair(Answer::kZeros, StatusCode::kInvalidArgument),
                                     std::pair(Answer::kEcho, StatusCode::kInvalidArgument),
                                     std::pair(Answer::kClose, StatusCode::kUnavailable),
                                     std::pair(Answer::kSilence, StatusCode::kDeadlineExceeded)}) {
    world_->host("server").spawn(pretend(world_->host("server"), answer));
    SimHost& client = world_->host("client");
    EXPECT_THAT(world_->run(client, meet_pretender(client)), StatusIs(code));
    world_->run_until(world_->now() + 1_s);
  }
}

}  // namespace
}  // namespace perdure::runtime::rpc
