#include "runtime/rpc/message_channel.h"

#include "base/random.h"
#include "chaos/sim_world.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::rpc {
namespace {

using namespace base::literals;
using base::StatusCode;
using base::Task;
using chaos::SimHost;
using chaos::SimWorld;
using ::perdure::testing::StatusIs;
using ::perdure::testing::test_seed;
using ::testing::HasSubstr;

std::vector<std::byte> payload_of(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

Frame frame_of(size_t n) {
  return {.type = 7,
          .stamp = {.epoch = base::Epoch(3), .incarnation = base::Incarnation(9), .budget_ms = 250},
          .payload = payload_of(n)};
}

// What a receiver makes of these bytes, without a channel.
base::Result<FrameHeader> read(base::ByteSpan bytes) {
  if (bytes.size() < kFrameHeaderBytes) return base::data_loss("cut");
  ASSIGN_OR_RETURN(const FrameHeader header, decode_header(bytes.first(kFrameHeaderBytes)));
  RETURN_IF_ERROR(check_payload(header, bytes.subspan(kFrameHeaderBytes)));
  return header;
}

TEST(FrameTest, ReadsWhatItWrote) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}}) {
    const std::vector<std::byte> bytes = encode_frame(frame_of(n));
    EXPECT_EQ(bytes.size(), kFrameHeaderBytes + n);
    ASSERT_OK_AND_ASSIGN(const FrameHeader header, read(bytes));
    EXPECT_EQ(header.type, 7);
    EXPECT_EQ(header.stamp.epoch, base::Epoch(3));
    EXPECT_EQ(header.stamp.incarnation, base::Incarnation(9));
    EXPECT_EQ(header.stamp.budget_ms, 250u);
    EXPECT_EQ(header.payload_bytes, n);
  }
}

// The layout of docs/formats/rpc.md: other versions of this program rely on it.
TEST(FrameTest, TheBytesAreThoseOfTheFormat) {
  const std::vector<std::byte> bytes = encode_frame(frame_of(2));
  const uint8_t expected[] = {0x50, 0x44, 0x52, 0x4d, 3, 0, 7, 0, 2, 0, 0, 0, 250, 0, 0, 0,
                              3,    0,    0,    0,    0, 0, 0, 0, 9, 0, 0, 0, 0,   0, 0, 0};
  for (size_t i = 0; i < sizeof(expected); ++i) {
    EXPECT_EQ(static_cast<uint8_t>(bytes[i]), expected[i]) << i;
  }
}

TEST(FrameTest, EveryCutAndEveryFlippedBitIsDataLoss) {
  const std::vector<std::byte> frame = encode_frame(frame_of(40));
  for (size_t cut = 0; cut < frame.size(); ++cut) {
    EXPECT_THAT(read(std::span(frame).first(cut)), StatusIs(StatusCode::kDataLoss)) << cut;
  }
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::vector<std::byte> flipped = frame;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_THAT(read(flipped), StatusIs(StatusCode::kDataLoss)) << bit;
  }
}

TEST(FrameTest, AHugeLengthIsRefusedByTheHeaderAlone) {
  std::vector<std::byte> frame = encode_frame(frame_of(8));
  for (size_t i = 8; i < 12; ++i) frame[i] = std::byte{0xff};
  EXPECT_THAT(decode_header(std::span(frame).first(kFrameHeaderBytes)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("4294967295")));
}

TEST(FrameTest, TheReceiverMayAllowLess) {
  const std::vector<std::byte> frame = encode_frame(frame_of(257));
  const base::ByteSpan header = std::span(frame).first(kFrameHeaderBytes);
  EXPECT_OK(decode_header(header));
  EXPECT_OK(decode_header(header, 257));
  EXPECT_THAT(decode_header(header, 256), StatusIs(StatusCode::kDataLoss, HasSubstr("257")));
}

TEST(FrameTest, AnotherVersionIsNamed) {
  std::vector<std::byte> frame = encode_frame(frame_of(0));
  frame[4] = std::byte{9};
  EXPECT_THAT(decode_header(frame), StatusIs(StatusCode::kDataLoss, HasSubstr("version 9")));
}

TEST(FrameTest, RandomBytesNeverDoMoreThanFail) {
  base::SeededRandom random(test_seed());
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(random.uniform_int(100));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
    EXPECT_THAT(read(bytes), StatusIs(StatusCode::kDataLoss));
    // The right start lets more of the header be looked at.
    const std::vector<std::byte> good = encode_frame({});
    std::copy_n(good.begin(), std::min<size_t>(6, bytes.size()), bytes.begin());
    EXPECT_THAT(read(bytes), StatusIs(StatusCode::kDataLoss));
  }
}

class ChannelTest : public ::testing::Test {
 protected:
  ChannelTest() : world_({.seed = test_seed(), .link = {.loss = 0.02, .duplicate = 0.02}}) {
    world_.add_host("server");
    world_.add_host("client");
  }

  static Task<void> send_bytes(SimHost& host, std::vector<std::byte> bytes) {
    const base::Address address("server", 5);
    auto channel = co_await host.network().connect(address, base::kNoDeadline);
    CHECK(channel.is_ok()) << channel.status();
    (void)co_await (*channel)->send(bytes, base::kNoDeadline);
  }
  static Task<base::Result<Frame>> receive_one(SimHost& host) {
    const base::Address address("", 5);
    auto listener = host.network().listen(address);
    CO_RETURN_IF_ERROR(listener.status());
    CO_ASSIGN_OR_RETURN(auto channel, co_await (*listener)->accept(base::kNoDeadline));
    MessageChannel messages(std::move(channel));
    co_return co_await messages.receive(host.clock().now() + 3_s);
  }
  base::Result<Frame> receive_of(std::vector<std::byte> bytes) {
    SimHost& client = world_.host("client");
    client.spawn(send_bytes(client, std::move(bytes)));
    SimHost& server = world_.host("server");
    return world_.run(server, receive_one(server));
  }

  SimWorld world_;
};

TEST_F(ChannelTest, AFrameArrivesAsItWasSent) {
  ASSERT_OK_AND_ASSIGN(const Frame frame, receive_of(encode_frame(frame_of(100000))));
  EXPECT_EQ(frame.type, 7);
  EXPECT_EQ(frame.stamp.incarnation, base::Incarnation(9));
  EXPECT_EQ(frame.payload, payload_of(100000));
}

TEST_F(ChannelTest, AFrameThatIsCutIsAnError) {
  const std::vector<std::byte> bytes = encode_frame(frame_of(30));
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto frame = receive_of({bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(cut)});
    // At the border of its parts the stream just ends.
    const bool is_border = cut == 0 || cut == kFrameHeaderBytes;
    EXPECT_THAT(frame, StatusIs(is_border ? StatusCode::kUnavailable : StatusCode::kDataLoss))
        << cut;
  }
}

TEST_F(ChannelTest, AWrongChecksumIsDataLoss) {
  std::vector<std::byte> bytes = encode_frame(frame_of(30));
  bytes.back() ^= std::byte{1};
  EXPECT_THAT(receive_of(bytes), StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
}

}  // namespace
}  // namespace perdure::runtime::rpc
