#include "runtime/journal_rocksdb/record_format.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::journal_rocksdb {
namespace {

using base::StatusCode;
using coordinator::JournalRecord;
using coordinator::RecordKind;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

const JournalRecord kRecord = {.kind = RecordKind::kNode,
                               .payload = {std::byte{1}, std::byte{2}, std::byte{3}}};

TEST(RecordFormatTest, KeysLieInTheOrderOfTheirNumbers) {
  uint64_t numbers[] = {1, 2, 255, 256, 257, 65535, 65536, 1ull << 40, ~0ull};
  std::string before;
  for (const uint64_t number : numbers) {
    const std::string key = encode_key(number);
    EXPECT_LT(before, key);
    ASSERT_OK_AND_ASSIGN(const uint64_t read, decode_key(key));
    EXPECT_EQ(read, number);
    before = key;
  }
  EXPECT_THAT(decode_key("abc"), StatusIs(StatusCode::kDataLoss, HasSubstr("3 bytes")));
}

TEST(RecordFormatTest, ReadsWhatItWrote) {
  ASSERT_OK_AND_ASSIGN(const JournalRecord read, decode_record(7, encode_record(7, kRecord)));
  EXPECT_EQ(read.kind, RecordKind::kNode);
  EXPECT_EQ(read.payload, kRecord.payload);
  EXPECT_OK(decode_record(1, encode_record(1, {.kind = RecordKind::kJob, .payload = {}})));
}

// A stored record of the first version of the format.
TEST(RecordFormatTest, AnOldRecordIsRead) {
  const std::string old("\x03\x38\x61\x2e\xd7\xb4\x33\xeb\xa6\x01\x02\x03", 12);
  EXPECT_EQ(encode_record(7, kRecord), old);
}

TEST(RecordFormatTest, EveryCutFlipAndOtherPlaceIsDataLoss) {
  const std::string value = encode_record(7, kRecord);
  for (size_t cut = 0; cut < value.size(); ++cut) {
    EXPECT_THAT(decode_record(7, value.substr(0, cut)), StatusIs(StatusCode::kDataLoss)) << cut;
  }
  for (size_t bit = 0; bit < value.size() * 8; ++bit) {
    std::string flipped = value;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THAT(decode_record(7, flipped), StatusIs(StatusCode::kDataLoss, HasSubstr("record 7")))
        << bit;
  }
  EXPECT_THAT(decode_record(8, value), StatusIs(StatusCode::kDataLoss));
}

}  // namespace
}  // namespace perdure::runtime::journal_rocksdb
