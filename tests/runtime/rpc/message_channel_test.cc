#include "runtime/rpc/message_channel.h"

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::rpc {
namespace {

using ::perdure::testing::StatusIs;

std::vector<std::byte> payload_of(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

// What a receiver makes of these bytes, without a channel.
base::Status read(base::ByteSpan bytes) {
  if (bytes.size() < kFrameHeaderBytes) return base::data_loss("cut");
  ASSIGN_OR_RETURN(const FrameHeader header, decode_header(bytes.first(kFrameHeaderBytes)));
  return check_payload(header, bytes.subspan(kFrameHeaderBytes));
}

TEST(FrameTest, ReadsWhatItWrote) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{1000}})
    EXPECT_OK(read(encode_frame(7, payload_of(n))));
}

TEST(FrameTest, EveryCutAndEveryFlippedBitIsDataLoss) {
  const std::vector<std::byte> frame = encode_frame(5, payload_of(40));
  for (size_t cut = 0; cut < frame.size(); ++cut) {
    EXPECT_THAT(read(std::span(frame).first(cut)), StatusIs(base::StatusCode::kDataLoss)) << cut;
  }
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::vector<std::byte> flipped = frame;
    flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_THAT(read(flipped), StatusIs(base::StatusCode::kDataLoss)) << bit;
  }
}

TEST(FrameTest, AHugeLengthIsRefusedBeforeAnythingIsAllocated) {
  std::vector<std::byte> frame = encode_frame(5, payload_of(8));
  for (size_t i = 8; i < 12; ++i) frame[i] = std::byte{0xff};
  EXPECT_THAT(decode_header(std::span(frame).first(kFrameHeaderBytes)),
              StatusIs(base::StatusCode::kDataLoss, ::testing::HasSubstr("4294967295")));
}

TEST(FrameTest, AnotherVersionIsNamed) {
  std::vector<std::byte> frame = encode_frame(5, {});
  frame[4] = std::byte{9};
  EXPECT_THAT(decode_header(frame),
              StatusIs(base::StatusCode::kDataLoss, ::testing::HasSubstr("version 9")));
}

TEST(FrameTest, RandomHeadersNeverDoMoreThanFail) {
  base::SeededRandom random(::perdure::testing::test_seed());
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(kFrameHeaderBytes);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
    EXPECT_FALSE(decode_header(bytes).is_ok());
  }
}

}  // namespace
}  // namespace perdure::runtime::rpc
