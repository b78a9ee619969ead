#include "tests/runtime/collective/fabric_conformance.h"

#include <cstring>
#include <numeric>
#include <thread>

#include "runtime/collective/collectives.h"

namespace perdure::runtime::collective {

using ::perdure::testing::StatusIs;

namespace {

constexpr Timeout kLong{20000};

template <typename T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span<T>(values));
}

std::vector<base::Rank> all_ranks(uint32_t n) {
  std::vector<base::Rank> ranks;
  for (uint32_t r = 0; r < n; ++r) ranks.push_back(base::Rank(r));
  return ranks;
}

}  // namespace

void FabricConformanceTest::run_ranks(FabricSet& set, const std::function<void(Fabric&)>& body) {
  std::vector<std::thread> threads;
  for (auto& fabric : set.fabrics) threads.emplace_back([&] { body(*fabric); });
  for (auto& thread : threads) thread.join();
}

TEST_P(FabricConformanceTest, MovesMessagesOfAllSizesInOrder) {
  FabricSet set = GetParam().make(2);
  const std::vector<size_t> sizes = {1, 7, 64, 4096, 65536, 1 << 20, 5'000'001};
  run_ranks(set, [&](Fabric& fabric) {
    const base::Rank other(1 - fabric.rank().value());
    for (size_t size : sizes) {
      std::vector<uint8_t> out(size, static_cast<uint8_t>(size + fabric.rank().value()));
      std::vector<uint8_t> in(size), in2(size);
      const Tag tag{Channel::kTest, 1, 2};
      const Ticket r1 = fabric.post_receive(other, tag, bytes_of(in));
      const Ticket s1 = fabric.post_send(other, tag, bytes_of(out));
      EXPECT_OK(fabric.wait(r1, kLong));
      EXPECT_OK(fabric.wait(s1, kLong));
      out.assign(size, 0xee);
      const Ticket s2 = fabric.post_send(other, tag, bytes_of(out));
      const Ticket r2 = fabric.post_receive(other, tag, bytes_of(in2));
      EXPECT_OK(fabric.wait(r2, kLong));
      EXPECT_OK(fabric.wait(s2, kLong));
      EXPECT_EQ(in, std::vector<uint8_t>(size, static_cast<uint8_t>(size + other.value())));
      EXPECT_EQ(in2, std::vector<uint8_t>(size, 0xee));
    }
  });
}

TEST_P(FabricConformanceTest, TagsKeepMessagesApart) {
  FabricSet set = GetParam().make(2);
  run_ranks(set, [&](Fabric& fabric) {
    const base::Rank other(1 - fabric.rank().value());
    std::vector<uint32_t> values(16), received(16);
    std::vector<Ticket> tickets;
    for (uint32_t i = 0; i < 16; ++i) {
      values[i] = 100 * fabric.rank().value() + i;
      tickets.push_back(fabric.post_send(other, {Channel::kTest, 9, i},
                                         std::as_bytes(std::span<uint32_t>(&values[i], 1))));
    }
    for (uint32_t i = 16; i-- > 0;) {  // taken in the opposite order
      tickets.push_back(
          fabric.post_receive(other, {Channel::kTest, 9, i},
                              std::as_writable_bytes(std::span<uint32_t>(&received[i], 1))));
    }
    for (const Ticket ticket : tickets) EXPECT_OK(fabric.wait(ticket, kLong));
    for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(received[i], 100 * other.value() + i);
  });
}

TEST_P(FabricConformanceTest, AllReduceGivesTheSumToAll) {
  for (const uint32_t n : {1u, 2u, 3u, 4u, 5u, 7u}) {
    for (const size_t count : {size_t{1}, size_t{9}, size_t{1000}, size_t{300'001}}) {
      FabricSet set = GetParam().make(n);
      run_ranks(set, [&](Fabric& fabric) {
        std::vector<int64_t> ring(count), small(count);
        for (size_t i = 0; i < count; ++i) {
          ring[i] = small[i] =
              static_cast<int64_t>(i * 31) - (1LL << 40) * (fabric.rank().value() + 1);
        }
        std::vector<std::byte> scratch(std::max(count * 8, all_reduce_scratch_bytes()));
        const std::vector<base::Rank> members = all_ranks(n);
        AllReduceArgs args{
            .members = members, .data = bytes_of(ring), .scratch = scratch, .timeout = kLong};
        EXPECT_OK(all_reduce_ring(fabric, args));
        args.data = bytes_of(small);
        args.channel = Channel::kVote;
        EXPECT_OK(all_reduce_small(fabric, args));
        for (size_t i = 0; i < count; i += 97) {
          const int64_t expected = static_cast<int64_t>(i * 31) * n - (1LL << 40) * n * (n + 1) / 2;
          ASSERT_EQ(ring[i], expected) << "ring, n " << n << " element " << i;
          ASSERT_EQ(small[i], expected) << "small, n " << n << " element " << i;
        }
      });
    }
  }
}

TEST_P(FabricConformanceTest, SubGroupsReduceSideBySide) {
  FabricSet set = GetParam().make(4);
  run_ranks(set, [&](Fabric& fabric) {
    const uint32_t r = fabric.rank().value();
    const std::vector<base::Rank> members = {base::Rank(r % 2), base::Rank(r % 2 + 2)};
    std::vector<float> values(5000, static_cast<float>(r));
    std::vector<std::byte> scratch(all_reduce_scratch_bytes());
    EXPECT_OK(all_reduce_ring(fabric, {.members = members,
                                       .op = ReduceOp::kMaxF32,
                                       .data = bytes_of(values),
                                       .scratch = scratch,
                                       .timeout = kLong}));
    EXPECT_EQ(values[4999], static_cast<float>(r % 2 + 2));
  });
}

TEST_P(FabricConformanceTest, WrongLengthIsDataLoss) {
  FabricSet set = GetParam().make(2);
  run_ranks(set, [&](Fabric& fabric) {
    std::vector<uint8_t> buffer(64);
    const Tag tag{Channel::kTest, 0, 0};
    if (fabric.rank() == base::Rank(0)) {
      buffer.resize(48);
      EXPECT_OK(fabric.wait(fabric.post_send(base::Rank(1), tag, bytes_of(buffer)), kLong));
    } else {
      EXPECT_THAT(fabric.wait(fabric.post_receive(base::Rank(0), tag, bytes_of(buffer)), kLong),
                  StatusIs(base::StatusCode::kDataLoss));
    }
  });
}

TEST_P(FabricConformanceTest, WaitEndsAtItsDeadlineAndAborts) {
  FabricSet set = GetParam().make(2);
  std::vector<uint8_t> buffer(64);
  Fabric& fabric = *set.fabrics[0];
  const Ticket ticket =
      fabric.post_receive(base::Rank(1), {Channel::kTest, 0, 0}, bytes_of(buffer));
  EXPECT_THAT(fabric.wait(ticket, Timeout(20)), StatusIs(base::StatusCode::kDeadlineExceeded));
  const Ticket later = fabric.post_receive(base::Rank(1), {Channel::kTest, 0, 1}, bytes_of(buffer));
  EXPECT_THAT(fabric.wait(later, kLong), StatusIs(base::StatusCode::kDeadlineExceeded));
}

TEST_P(FabricConformanceTest, AbortEndsWaitsOfAnotherThread) {
  FabricSet set = GetParam().make(2);
  std::vector<uint8_t> buffer(1 << 20);
  Fabric& fabric = *set.fabrics[0];
  const Ticket receive =
      fabric.post_receive(base::Rank(1), {Channel::kTest, 0, 0}, bytes_of(buffer));
  std::thread aborter([&] { fabric.abort(base::aborted("epoch 7 is over")); });
  EXPECT_THAT(fabric.wait(receive, kLong), StatusIs(base::StatusCode::kAborted, "epoch 7 is over"));
  aborter.join();
  fabric.abort(base::cancelled("a second reason does not replace the first"));
  const Ticket later = fabric.post_send(base::Rank(1), {Channel::kTest, 0, 0}, bytes_of(buffer));
  EXPECT_THAT(fabric.wait(later, kLong), StatusIs(base::StatusCode::kAborted));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FabricConformanceTest);

}  // namespace perdure::runtime::collective
