// What both queues must do, errors of the kernel included.

#include "checkpoint/blocks/block_queue.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "tests/checkpoint/blocks/block_image.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint::blocks {
namespace {

class BlockQueueTest : public ::testing::TestWithParam<const char*> {
 protected:
  BlockQueueTest()
      : folder_(std::filesystem::temp_directory_path().string()), path_(folder_.path("a")) {
    put(path_, image_.first(kBytes));
    fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  }
  ~BlockQueueTest() override { ::close(fd_); }
  void SetUp() override {
    if (GetParam() == std::string("blocking")) {
      queue_ = make_blocking_queue();
      return;
    }
    auto queue = make_uring_queue(kInFlight);
    if (!queue.is_ok()) GTEST_SKIP() << queue.status();
    queue_ = std::move(queue).value();
  }

  Transfer read_at(uint64_t offset, uint32_t bytes, uint32_t id) {
    return {.direction = Direction::kRead,
            .fd = fd_,
            .memory = back_.bytes().data() + offset,
            .offset = offset,
            .bytes = bytes,
            .id = id};
  }

  static constexpr size_t kBytes = 100'000;
  static constexpr uint32_t kInFlight = 8;
  Folder folder_;
  Image image_{kBytes, testing::test_seed()};
  Image back_{2 * kBytes, 2};
  const std::string path_;
  int fd_ = -1;
  std::unique_ptr<BlockQueue> queue_;
};
INSTANTIATE_TEST_SUITE_P(Queues, BlockQueueTest, ::testing::Values("uring", "blocking"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(BlockQueueTest, EachTransferComesBackOnceWithItsBytes) {
  std::map<uint32_t, int64_t> done;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kInFlight; ++i) queue_->submit(read_at(i * 1000, 1000, 100 + i));
    for (uint32_t i = 0; i < kInFlight; ++i) {
      const Completion completion = queue_->wait();
      done[completion.id] += completion.result;
    }
  }
  EXPECT_EQ(done.size(), kInFlight);
  for (uint32_t i = 0; i < kInFlight; ++i) EXPECT_EQ(done[100 + i], 3000) << i;
  EXPECT_TRUE(equal(back_.first(8000), image_.first(8000)));
}

TEST_P(BlockQueueTest, TheEndOfTheFileCutsATransfer) {
  queue_->submit(read_at(kBytes - 10, 1000, 1));
  EXPECT_EQ(queue_->wait().result, 10);
  queue_->submit(read_at(kBytes, 1000, 1));
  EXPECT_EQ(queue_->wait().result, 0);
}

TEST_P(BlockQueueTest, ErrorsOfTheKernelAreNegative) {
  Transfer transfer = read_at(0, 10, 7);
  transfer.direction = Direction::kWrite;  // the file is open to be read
  queue_->submit(transfer);
  const Completion completion = queue_->wait();
  EXPECT_EQ(completion.id, 7u);
  EXPECT_EQ(completion.result, -EBADF);
  transfer = read_at(0, 10, 8);
  transfer.fd = -1;
  queue_->submit(transfer);
  EXPECT_EQ(queue_->wait().result, -EBADF);
}

TEST_P(BlockQueueTest, WaitingForNothingIsABug) {
  EXPECT_DEATH(queue_->wait(), "no block is under way");
}

TEST(UringQueueTest, MoreThanTheKernelAllowsIsRefused) {
  EXPECT_THAT(make_uring_queue(1 << 30),
              ::perdure::testing::StatusIs(base::StatusCode::kUnimplemented,
                                           ::testing::HasSubstr("io_uring")));
}

}  // namespace
}  // namespace perdure::checkpoint::blocks
