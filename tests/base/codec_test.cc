#include "base/codec.h"

#include <array>
#include <limits>

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

void encode_all(Encoder& out) {
  out.u8(0x12);
  out.u16(0x3456);
  out.u32(0x789abcde);
  out.u64(0xf0123456789abcde);
  out.i64(-2);
  out.f64(-0.0);
  out.string("perdure");
  out.bytes({});
  out.raw(as_byte_span("xy"));
}

Status decode_all(ByteSpan bytes) {
  Decoder in(bytes);
  ASSIGN_OR_RETURN(const uint8_t a, in.u8());
  ASSIGN_OR_RETURN(const uint16_t b, in.u16());
  ASSIGN_OR_RETURN(const uint32_t c, in.u32());
  ASSIGN_OR_RETURN(const uint64_t d, in.u64());
  ASSIGN_OR_RETURN(const int64_t e, in.i64());
  ASSIGN_OR_RETURN(const double f, in.f64());
  ASSIGN_OR_RETURN(const std::string g, in.string(7));
  ASSIGN_OR_RETURN(const ByteSpan h, in.bytes(0));
  ASSIGN_OR_RETURN(const ByteSpan i, in.raw(2));
  EXPECT_EQ(a, 0x12);
  EXPECT_EQ(b, 0x3456);
  EXPECT_EQ(c, 0x789abcdeu);
  EXPECT_EQ(d, 0xf0123456789abcdeu);
  EXPECT_EQ(e, -2);
  EXPECT_EQ(f, 0.0);
  EXPECT_TRUE(std::signbit(f));
  EXPECT_EQ(g, "perdure");
  EXPECT_TRUE(h.empty());
  EXPECT_EQ(as_text(i), "xy");
  return in.finish();
}

TEST(CodecTest, DecodesWhatWasEncoded) {
  Encoder out;
  encode_all(out);
  EXPECT_OK(out.status());
  EXPECT_OK(decode_all(out.bytes()));
  EXPECT_EQ(out.take().size(), 48u);
  EXPECT_TRUE(out.bytes().empty());
}

TEST(CodecTest, IsLittleEndian) {
  Encoder out;
  out.u32(0x01020304);
  EXPECT_EQ(as_text(out.bytes()), std::string_view("\4\3\2\1"));
}

TEST(CodecTest, ACutAtAnyByteIsDataLoss) {
  Encoder out;
  encode_all(out);
  for (size_t cut = 0; cut < out.bytes().size(); ++cut) {
    EXPECT_THAT(decode_all(out.bytes().first(cut)),
                StatusIs(StatusCode::kDataLoss, HasSubstr("wanted at offset")))
        << cut;
  }
}

TEST(CodecTest, BytesLeftOverAreDataLoss) {
  Encoder out;
  encode_all(out);
  out.u8(0);
  EXPECT_THAT(decode_all(out.bytes()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("1 bytes left over at offset 48")));
}

TEST(CodecTest, ALengthAboveTheLimitIsDataLoss) {
  Encoder out;
  out.string("perdure");
  Decoder in(out.bytes());
  EXPECT_THAT(in.string(6), StatusIs(StatusCode::kDataLoss, HasSubstr("length 7 at offset 0")));
}

TEST(CodecTest, AFixedBufferReportsWhatDidNotFit) {
  std::array<std::byte, 10> storage;
  Encoder out{MutableByteSpan(storage)};
  out.u64(1);
  out.u16(2);
  EXPECT_OK(out.status());
  out.u16(3);
  out.u8(4);
  EXPECT_THAT(out.status(),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("3 bytes too small")));
  EXPECT_EQ(out.bytes().size(), 10u);
  out.clear();
  EXPECT_OK(out.status());
  EXPECT_TRUE(out.bytes().empty());
}

}  // namespace
}  // namespace perdure::base
