#include "base/buffer.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <thread>

#include "base/buffer_pool.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

class ArenaTest : public ::testing::TestWithParam<Prefault> {};

INSTANTIATE_TEST_SUITE_P(AllWays, ArenaTest,
                         ::testing::Values(Prefault::kPopulate, Prefault::kTouch, Prefault::kNone));

TEST_P(ArenaTest, GivesZeroFilledAlignedMemoryThatDoesNotOverlap) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(3_MiB, GetParam()));
  EXPECT_EQ(arena.size_bytes(), 4_MiB);
  ASSERT_OK_AND_ASSIGN(const auto a, arena.allocate(100));
  ASSERT_OK_AND_ASSIGN(const auto b, arena.allocate(3_MiB, 4096));
  EXPECT_EQ(reinterpret_cast<size_t>(a.data()) % 64, 0u);
  EXPECT_EQ(reinterpret_cast<size_t>(b.data()) % 4096, 0u);
  EXPECT_GE(b.data(), a.data() + a.size());
  EXPECT_EQ(arena.used_bytes(), 4096 + 3_MiB);
  EXPECT_TRUE(std::all_of(b.begin(), b.end(), [](std::byte x) { return x == std::byte{0}; }));
}

TEST(ArenaTest, SmallArenaRoundsUpToPages) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(1));
  EXPECT_EQ(arena.size_bytes(), 4096u);
  EXPECT_OK(arena.allocate(4096));
  EXPECT_THAT(arena.allocate(1), StatusIs(StatusCode::kResourceExhausted,
                                          HasSubstr("1 bytes wanted, 0 of 4096 left")));
  EXPECT_OK(arena.allocate(0));
}

TEST(ArenaTest, RefusesSizesThatCannotBe) {
  EXPECT_THAT(Arena::create(0), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Arena::create(~size_t{0}), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(Arena::create(size_t{1} << 60), StatusIs(StatusCode::kResourceExhausted));
}

TEST(ArenaTest, ArraysAreTypedAndBounded) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(64_KiB));
  ASSERT_OK_AND_ASSIGN(const std::span<double> array, arena.allocate_array<double>(100));
  EXPECT_EQ(array.size(), 100u);
  EXPECT_EQ(array[99], 0.0);
  EXPECT_THAT(arena.allocate_array<double>(~size_t{0} / 4),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("not addressable")));
  EXPECT_THAT(arena.allocate_array<double>(100000), StatusIs(StatusCode::kResourceExhausted));
}

TEST(ArenaTest, MemoryStaysWhenTheArenaMoves) {
  ASSERT_OK_AND_ASSIGN(Arena first, Arena::create(64_KiB));
  ASSERT_OK_AND_ASSIGN(const auto bytes, first.allocate(8));
  std::memcpy(bytes.data(), "perdure", 8);
  ASSERT_OK_AND_ASSIGN(Arena second, Arena::create(4096));
  second = std::move(first);
  Arena third(std::move(second));
  EXPECT_STREQ(reinterpret_cast<const char*>(bytes.data()), "perdure");
  EXPECT_EQ(third.used_bytes(), 8u);
}

TEST(BufferPoolTest, HandsOutEachBufferOnce) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(1_MiB));
  ASSERT_OK_AND_ASSIGN(const auto pool,
                       BufferPool::create(arena, {.buffer_count = 2, .buffer_bytes = 8192}));
  {
    ASSERT_OK_AND_ASSIGN(PooledBuffer a, pool->acquire());
    ASSERT_OK_AND_ASSIGN(PooledBuffer b, pool->acquire());
    EXPECT_NE(a.bytes().data(), b.bytes().data());
    EXPECT_EQ(a.bytes().size(), 8192u);
    EXPECT_THAT(pool->acquire(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("all 2")));
    a = std::move(b);
    EXPECT_EQ(pool->free_count(), 1u);
  }
  EXPECT_EQ(pool->free_count(), 2u);
}

TEST(BufferPoolTest, SaysWhichBufferDidNotFit) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(64_KiB));
  EXPECT_THAT(BufferPool::create(arena, {.buffer_count = 3, .buffer_bytes = 32_KiB}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("buffer 2 of 3")));
}

TEST(BufferPoolTest, ThreadsShareIt) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(1_MiB));
  ASSERT_OK_AND_ASSIGN(const auto pool,
                       BufferPool::create(arena, {.buffer_count = 3, .buffer_bytes = 4096}));
  const auto work = [&pool] {
    for (int i = 0; i < 2000; ++i) {
      auto buffer = pool->acquire();
      if (buffer.is_ok()) buffer->bytes()[0] = std::byte{1};
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(pool->free_count(), 3u);
}

TEST(BufferPoolDeathTest, ABufferMustNotOutliveThePool) {
  ASSERT_OK_AND_ASSIGN(Arena arena, Arena::create(64_KiB));
  EXPECT_DEATH(
      {
        auto pool = BufferPool::create(arena, {.buffer_count = 1, .buffer_bytes = 64}).value();
        auto buffer = pool->acquire();
        pool.reset();
      },
      "outlives its pool");
}

}  // namespace
}  // namespace perdure::base
