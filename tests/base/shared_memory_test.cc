#include "base/posix_shared_memory.h"

#include <cstring>

#include "base/posix_process.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;

TEST(SharedMemoryTest, OthersSeeWhatWasWrittenAlsoWhenTheWriterIsGone) {
  ASSERT_OK_AND_ASSIGN(SharedMemory keeper, SharedMemory::make("test"));
  {
    ASSERT_OK_AND_ASSIGN(SharedMemory writer, SharedMemory::open(keeper.path()));
    ASSERT_OK_AND_ASSIGN(const MutableByteSpan bytes, writer.map(10000));
    EXPECT_EQ(bytes.size(), 10000u);
    bytes[9999] = std::byte{7};
  }
  ASSERT_OK_AND_ASSIGN(const MutableByteSpan seen, keeper.map(0));
  ASSERT_EQ(seen.size(), 10000u);
  EXPECT_EQ(seen[9999], std::byte{7});
}

TEST(SharedMemoryTest, ItGrowsAndKeepsWhatThereWas) {
  ASSERT_OK_AND_ASSIGN(SharedMemory memory, SharedMemory::make("test"));
  ASSERT_OK_AND_ASSIGN(MutableByteSpan bytes, memory.map(100));
  bytes[99] = std::byte{3};
  ASSERT_OK_AND_ASSIGN(bytes, memory.map(1 << 20));
  EXPECT_EQ(bytes[99], std::byte{3});
  EXPECT_EQ(bytes[1 << 19], std::byte{0});
  EXPECT_EQ(memory.size_bytes().value(), size_t{1} << 20);
  ASSERT_OK_AND_ASSIGN(bytes, memory.map(5));
  EXPECT_EQ(bytes.size(), size_t{1} << 20) << "it never shrinks";
}

TEST(SharedMemoryTest, ItsPagesAreThere) {
  ASSERT_OK_AND_ASSIGN(SharedMemory memory, SharedMemory::make("test"));
  ASSERT_OK_AND_ASSIGN(const MutableByteSpan bytes, memory.map(8 << 20));
  const uint64_t before = process_usage().page_faults;
  std::memset(bytes.data(), 1, bytes.size());
  EXPECT_LE(process_usage().page_faults - before, 512u);  // of 2048; ASan has its own
}

TEST(SharedMemoryTest, WhatCannotBeHadIsSaidAndNothingIsLost) {
  EXPECT_THAT(SharedMemory::open("/proc/self/fd/9999"), StatusIs(StatusCode::kNotFound));
  ASSERT_OK_AND_ASSIGN(SharedMemory memory, SharedMemory::make("test"));
  ASSERT_OK_AND_ASSIGN(MutableByteSpan bytes, memory.map(4096));
  bytes[0] = std::byte{1};
  EXPECT_THAT(memory.map(size_t{1} << 62), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(memory.size_bytes().value(), 4096u);
  EXPECT_EQ(memory.bytes()[0], std::byte{1});
}

TEST(SharedMemoryTest, MovingItMovesAll) {
  ASSERT_OK_AND_ASSIGN(SharedMemory first, SharedMemory::make("test"));
  ASSERT_OK_AND_ASSIGN(const MutableByteSpan bytes, first.map(4096));
  SharedMemory second = std::move(first);
  EXPECT_EQ(second.bytes().data(), bytes.data());
  EXPECT_TRUE(first.bytes().empty());  // NOLINT: what a moved-from one is
  SharedMemory third;
  third = std::move(second);
  EXPECT_EQ(third.bytes().data(), bytes.data());
}

}  // namespace
}  // namespace perdure::base
