// What a queue can answer that a healthy disk does not: short blocks, passing and lasting errors.

#include "checkpoint/blocks/queue_files.h"

#include <cerrno>
#include <deque>
#include <functional>

#include "tests/checkpoint/blocks/block_image.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint::blocks {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A real queue that may be told otherwise: `answer` sees each transfer with its number, and may
// shorten it, or give a result in its place.
struct Script {
  std::function<std::optional<int64_t>(Transfer&, int number)> answer;
  int count = 0;
  int under_way = 0;
};

class ScriptedQueue final : public BlockQueue {
 public:
  explicit ScriptedQueue(Script& script) : script_(script), real_(make_blocking_queue()) {}
  void submit(const Transfer& transfer) override {
    ++script_.under_way;
    waiting_.push_back(transfer);
  }
  Completion wait() override {
    // The newest first: order is not promised.
    Transfer transfer = waiting_.back();
    waiting_.pop_back();
    --script_.under_way;
    if (const auto result = script_.answer(transfer, script_.count++)) {
      return {.id = transfer.id, .result = *result};
    }
    real_->submit(transfer);
    return real_->wait();
  }

 private:
  Script& script_;
  std::unique_ptr<BlockQueue> real_;
  std::deque<Transfer> waiting_;
};

class QueueFilesTest : public ::testing::Test {
 protected:
  QueueFilesTest()
      : folder_(std::filesystem::temp_directory_path().string()),
        image_(kBytes, testing::test_seed()),
        files_(std::make_unique<ScriptedQueue>(script_), {.queue = "scripted"},
               {.block_bytes = 64 << 10, .blocks_in_flight = 4}) {}

  base::Status write() {
    return files_.write({.path = path_, .image = image_.first(kBytes), .file_bytes = kFileBytes});
  }
  base::Status read() {
    const ReadRange range = {.offset = 0, .to = back_.bytes().first(kFileBytes)};
    return files_.read(path_, {&range, 1}, nullptr);
  }
  void expect_right() {
    EXPECT_TRUE(equal(contents(path_), image_.first(kFileBytes)));
    EXPECT_EQ(script_.under_way, 0);
  }

  static constexpr size_t kBytes = 1 << 20;
  static constexpr size_t kFileBytes = kBytes - 1000;
  Folder folder_;
  Image image_;
  Image back_{kBytes, 5};
  Script script_;
  QueueFiles files_;
  const std::string path_ = folder_.path("file");
};

TEST_F(QueueFilesTest, ShortBlocksAreContinued) {
  base::SeededRandom random(testing::test_seed());
  script_.answer = [&](Transfer& transfer, int) -> std::optional<int64_t> {
    const uint32_t units = transfer.bytes / 4096;
    if (units > 1) transfer.bytes = static_cast<uint32_t>(1 + random.uniform_int(units)) * 4096;
    return std::nullopt;
  };
  ASSERT_OK(write());
  expect_right();
  ASSERT_OK(read());
  EXPECT_TRUE(equal(back_.first(kFileBytes), image_.first(kFileBytes)));
  EXPECT_GT(script_.count, 40);
}

TEST_F(QueueFilesTest, BytesBeyondTheAlignmentAreMovedAgain) {
  script_.answer = [](Transfer& transfer, int) -> std::optional<int64_t> {
    if (transfer.bytes <= 8192) return std::nullopt;
    return 4096 + 100;  // 4096 of them can have been moved
  };
  // The queue lies: nothing was moved. So only the count of transfers is looked at.
  ASSERT_OK(write());
  if (files_.mode() != "scripted, direct") GTEST_SKIP() << "no direct I/O here: " << files_.mode();
  EXPECT_EQ(script_.count, 16 * 15);
}

TEST_F(QueueFilesTest, PassingErrorsAreTriedAgain) {
  script_.answer = [](Transfer&, int number) -> std::optional<int64_t> {
    if (number % 3 == 0) return -EINTR;
    if (number % 3 == 1) return -EAGAIN;
    return std::nullopt;
  };
  ASSERT_OK(write());
  expect_right();
  ASSERT_OK(read());
  EXPECT_TRUE(equal(back_.first(kFileBytes), image_.first(kFileBytes)));
}

TEST_F(QueueFilesTest, AnErrorThatNeverPassesEnds) {
  script_.answer = [](Transfer&, int) -> std::optional<int64_t> { return -EAGAIN; };
  EXPECT_THAT(write(), StatusIs(StatusCode::kInternal, HasSubstr(path_ + " at byte ")));
  EXPECT_EQ(script_.under_way, 0);
}

TEST_F(QueueFilesTest, ErrorsNamePathAndPlaceAndLeaveNothingUnderWay) {
  const std::vector<std::pair<int, StatusCode>> errors = {
      {ENOSPC, StatusCode::kResourceExhausted}, {EDQUOT, StatusCode::kResourceExhausted},
      {EFBIG, StatusCode::kResourceExhausted},  {EIO, StatusCode::kDataLoss},
      {EROFS, StatusCode::kFailedPrecondition}, {EPERM, StatusCode::kFailedPrecondition}};
  script_.answer = [](Transfer&, int) { return std::nullopt; };
  ASSERT_OK(write());
  for (const auto& [number, code] : errors) {
    script_.count = 0;
    script_.answer = [number = number](Transfer& transfer, int) -> std::optional<int64_t> {
      if (transfer.offset == 5 * (64 << 10)) return -number;
      return std::nullopt;
    };
    EXPECT_THAT(write(),
                StatusIs(code, AllOf(HasSubstr("write " + path_), HasSubstr("at byte 327680"))));
    EXPECT_EQ(script_.under_way, 0);
    EXPECT_LT(script_.count, 12);
    EXPECT_THAT(read(),
                StatusIs(code, AllOf(HasSubstr("read " + path_), HasSubstr("at byte 327680"))));
    EXPECT_EQ(script_.under_way, 0);
  }
}

TEST_F(QueueFilesTest, ARefusedDirectBlockGoesThroughThePageCache) {
  bool refused = false;
  script_.answer = [&](Transfer& transfer, int) -> std::optional<int64_t> {
    if (transfer.offset != 4 * (64 << 10) || refused) return std::nullopt;
    refused = true;
    return -EINVAL;
  };
  const base::Status wrote = write();
  if (!wrote.is_ok()) {
    EXPECT_THAT(wrote, StatusIs(StatusCode::kInvalidArgument));
    GTEST_SKIP() << "no direct I/O here";
  }
  expect_right();
  EXPECT_THAT(files_.mode(), HasSubstr("scripted, buffered ("));
  refused = false;
  ASSERT_OK(read());
  EXPECT_TRUE(equal(back_.first(kFileBytes), image_.first(kFileBytes)));
}

TEST_F(QueueFilesTest, ABufferedBlockThatIsRefusedIsAnError) {
  script_.answer = [](Transfer&, int) -> std::optional<int64_t> { return -EINVAL; };
  EXPECT_THAT(write(), StatusIs(StatusCode::kInvalidArgument, HasSubstr(path_)));
  EXPECT_EQ(script_.under_way, 0);
}

TEST_F(QueueFilesTest, AFileThatShrinksWhileItIsReadIsDataLoss) {
  script_.answer = [](Transfer&, int) { return std::nullopt; };
  ASSERT_OK(write());
  script_.answer = [&](Transfer& transfer, int number) -> std::optional<int64_t> {
    if (number >= 6) std::filesystem::resize_file(path_, 100'700);
    if (transfer.offset >= 65536 && transfer.offset < 131072 && number < 6) return -EINTR;
    return std::nullopt;
  };
  script_.count = 0;
  EXPECT_THAT(read(), StatusIs(StatusCode::kDataLoss, HasSubstr(path_ + ": it ends at byte")));
}

TEST_F(QueueFilesTest, AWriteThatTakesNothingEnds) {
  script_.answer = [](Transfer&, int) -> std::optional<int64_t> { return 0; };
  EXPECT_THAT(write(), StatusIs(StatusCode::kInternal, HasSubstr("takes 0 bytes of")));
}

using QueueFilesDeathTest = QueueFilesTest;
TEST_F(QueueFilesDeathTest, OptionsThatCanNotBeAreBugs) {
  EXPECT_DEATH(QueueFiles(make_blocking_queue(), {.queue = "x"}, {.block_bytes = 1000}), "1000");
  EXPECT_DEATH(QueueFiles(make_blocking_queue(), {.queue = "x"}, {.blocks_in_flight = 0}),
               "flight");
  EXPECT_DEATH((void)files_.write({.path = path_, .image = image_.first(1), .file_bytes = 2}),
               "file_bytes");
}

}  // namespace
}  // namespace perdure::checkpoint::blocks
