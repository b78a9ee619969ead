#include "checkpoint/slab.h"

#include <cstring>

#include "base/random.h"
#include "checkpoint/manifest.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::perdure::testing::test_seed;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::byte> random_bytes(base::SeededRandom& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
  return bytes;
}

// Two tensors: one of 3 parts, the first of two pieces and a bit; one small.
class SlabTest : public ::testing::Test {
 protected:
  SlabTest() {
    constexpr int64_t kLong = 2 * kPieceBytes / 4 + 3;
    std::vector<SlotTensor> tensors(2);
    tensors[0] = {.tensor = base::TensorId(4),
                  .parts = {{.name = "long", .shape = {kLong}},
                            {.name = "m.long", .shape = {7, 5}},
                            {.name = "x", .type = ElementType::kI16, .shape = {3}}}};
    tensors[1] = {.tensor = base::TensorId(9),
                  .parts = {{.name = "empty", .shape = {0, 4}}, {.name = "one", .shape = {}}}};
    plan_ = plan_slot(std::move(tensors)).value();
    memory_.resize(plan_.slot_bytes);
    for (const SlotTensor& t : plan_.tensors) {
      for (const SlotPart& p : t.parts) data_.push_back(random_bytes(random_, p.bytes));
    }
  }
  void copy_all(SlotWriter& writer) {
    size_t next = 0;
    for (size_t t = 0; t < plan_.tensors.size(); ++t) {
      for (size_t p = 0; p < plan_.tensors[t].parts.size(); ++p) writer.copy(t, p, data_[next++]);
      writer.set_digest(t, 100 + t);
    }
  }
  void write(uint64_t generation, uint64_t step) {
    SlotWriter writer(memory_, plan_);
    copy_all(writer);
    ASSERT_OK(writer.finish(generation, step, {std::byte{1}, std::byte{2}}));
  }
  base::Status read_all(const SlotRecord& record) {
    size_t next = 0;
    for (const SlotTensor& t : record.tensors) {
      for (const SlotPart& p : t.parts) {
        std::vector<std::byte> bytes(p.bytes);
        RETURN_IF_ERROR(read_part(memory_, record, p, bytes));
        EXPECT_EQ(bytes, data_[next++]) << p.name;
      }
    }
    return base::Status::ok();
  }

  base::SeededRandom random_{test_seed(), 7};
  SlotPlan plan_;
  std::vector<std::byte> memory_;
  std::vector<std::vector<std::byte>> data_;
};

TEST_F(SlabTest, WhatWasWrittenIsRead) {
  write(5, 20);
  EXPECT_EQ(slot_generation(memory_), 5u);
  ASSERT_OK_AND_ASSIGN(const SlotRecord record, read_slot(memory_));
  EXPECT_EQ(record.generation, 5u);
  EXPECT_EQ(record.step, 20u);
  EXPECT_EQ(record.state, (std::vector<std::byte>{std::byte{1}, std::byte{2}}));
  ASSERT_EQ(record.tensors.size(), 2u);
  EXPECT_EQ(record.tensors[1].tensor, base::TensorId(9));
  EXPECT_EQ(record.tensors[1].digest, 101u);
  EXPECT_OK(read_all(record));
}

TEST_F(SlabTest, TheImageIsASafetensorsFile) {
  write(1, 1);
  ASSERT_OK_AND_ASSIGN(const SlotRecord record, read_slot(memory_));
  const base::ByteSpan image = slot_image(memory_, record);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, parse_safetensors(image, "slot"));
  EXPECT_EQ(header.data_offset % kDataAlignment, 0u);
  const StoredTensor* tensor = header.find("m.long");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->shape, (Shape{7, 5}));
  EXPECT_EQ(std::memcmp(image.data() + header.data_offset + tensor->begin, data_[1].data(),
                        data_[1].size()),
            0);
}

TEST_F(SlabTest, WhatIsNotFinishedIsEmpty) {
  EXPECT_THAT(read_slot(memory_), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(read_slot({}), StatusIs(StatusCode::kNotFound));
  write(1, 1);
  const SlotWriter writer(memory_, plan_);  // its process is killed here
  EXPECT_THAT(read_slot(memory_), StatusIs(StatusCode::kNotFound));
  EXPECT_EQ(slot_generation(memory_), 0u);
}

TEST_F(SlabTest, AReaderThatIsOvertakenSaysSo) {
  write(1, 1);
  ASSERT_OK_AND_ASSIGN(const SlotRecord record, read_slot(memory_));
  write(2, 2);
  EXPECT_THAT(read_all(record), StatusIs(StatusCode::kAborted));
}

TEST_F(SlabTest, APartOfAnotherSizeIsRefused) {
  write(1, 1);
  ASSERT_OK_AND_ASSIGN(const SlotRecord record, read_slot(memory_));
  std::vector<std::byte> bytes(3);
  EXPECT_THAT(read_part(memory_, record, record.tensors[0].parts[0], bytes),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("long")));
}

// Every byte matters to somebody, but for the padding.
TEST_F(SlabTest, AFlippedBitIsFoundAndNamed) {
  write(1, 1);
  ASSERT_OK_AND_ASSIGN(const SlotRecord record, read_slot(memory_));
  for (const SlotTensor& t : record.tensors) {
    for (const SlotPart& p : t.parts) {
      if (p.bytes == 0) continue;
      for (int round = 0; round < 3; ++round) {
        const uint64_t at = random_.uniform_int(p.bytes);
        const auto bit = static_cast<std::byte>(1u << random_.uniform_int(8));
        memory_[kSlotPage + p.offset + at] ^= bit;
        std::vector<std::byte> bytes(p.bytes);
        EXPECT_THAT(read_part(memory_, record, p, bytes),
                    StatusIs(StatusCode::kDataLoss,
                             AllOf(HasSubstr("'" + p.name + "'"),
                                   HasSubstr("piece " + std::to_string(at / kPieceBytes)))));
        memory_[kSlotPage + p.offset + at] ^= bit;
      }
    }
  }
  EXPECT_OK(read_all(record));
}

TEST_F(SlabTest, ARecordOrHeaderThatHasChangedIsRefused) {
  write(3, 1);
  const std::vector<std::byte> good = memory_;
  const size_t record_begin =
      kSlotPage + (plan_.image_bytes + kSlotPage - 1) / kSlotPage * kSlotPage;
  for (int round = 0; round < 2000; ++round) {
    const bool in_header = random_.bernoulli(0.5);
    const size_t at = in_header ? random_.uniform_int(64) : record_begin + random_.uniform_int(200);
    const auto bit = static_cast<std::byte>(1u << random_.uniform_int(8));
    memory_[at] ^= bit;
    const auto read = read_slot(memory_);
    if (read.is_ok()) {  // the four bytes of padding of the record's room, or none
      EXPECT_EQ(read->generation, 3u);
      EXPECT_OK(read_all(*read));
    } else {
      EXPECT_THAT(read.status().code(),
                  ::testing::AnyOf(StatusCode::kNotFound, StatusCode::kDataLoss));
    }
    memory_[at] ^= bit;
  }
  EXPECT_EQ(memory_, good);
}

TEST_F(SlabTest, NamesMustBeDifferent) {
  std::vector<SlotTensor> tensors(1);
  tensors[0].parts = {{.name = "a", .shape = {1}}, {.name = "a", .shape = {1}}};
  EXPECT_THAT(plan_slot(std::move(tensors)), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(SlabTest, AStateThatIsTooLargeIsRefused) {
  SlotWriter writer(memory_, plan_);
  copy_all(writer);
  EXPECT_THAT(writer.finish(1, 1, std::vector<std::byte>(5000)),
              StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(read_slot(memory_), StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace perdure::checkpoint
