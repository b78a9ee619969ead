// One set of cases for io_uring and for blocking calls, on a disk and in memory.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>

#include <functional>

#include "checkpoint/block_files.h"
#include "tests/checkpoint/blocks/block_image.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint::blocks {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string name;
  std::function<base::Result<std::unique_ptr<BlockFiles>>(const BlockOptions&)> make;
  std::string parent;
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

class BlockFilesTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!std::filesystem::is_directory(GetParam().parent)) {
      GTEST_SKIP() << "needs " << GetParam().parent;
    }
    files_ = make({});
    if (files_ == nullptr) return;
    folder_ = std::make_unique<Folder>(GetParam().parent);
  }
  std::unique_ptr<BlockFiles> make(const BlockOptions& options) {
    auto files = GetParam().make(options);
    if (files.is_ok()) return std::move(files).value();
    skip_ = files.status().message();
    return nullptr;
  }
  std::string path(const std::string& name) const { return folder_->path(name); }

  // Writes, looks at the file by ordinary means, and reads it back.
  void round_trip(const std::string& name, base::ByteSpan image, uint64_t file_bytes) {
    SCOPED_TRACE(name + ", " + std::to_string(file_bytes) + " bytes");
    ASSERT_OK(files_->write({.path = path(name), .image = image, .file_bytes = file_bytes}));
    EXPECT_TRUE(equal(contents(path(name)), image.first(file_bytes)));
    Image back(file_bytes, 99);
    const ReadRange all = {.offset = 0, .to = back.bytes()};
    ASSERT_OK(files_->read(path(name), {&all, 1}, nullptr));
    EXPECT_TRUE(equal(back.bytes(), image.first(file_bytes)));
  }

  std::string skip_;
  std::unique_ptr<BlockFiles> files_;
  std::unique_ptr<Folder> folder_;
};

#define SKIP_WITHOUT_FILES() \
  if (files_ == nullptr) GTEST_SKIP() << skip_

std::vector<Case> cases() {
  const auto uring = [](const BlockOptions& o) { return make_uring_files(o); };
  const auto blocking = [](const BlockOptions& o) {
    return base::Result<std::unique_ptr<BlockFiles>>(make_blocking_files(o));
  };
  const std::string disk = std::filesystem::temp_directory_path().string();
  return {{"UringDisk", uring, disk},
          {"UringMemory", uring, "/dev/shm"},
          {"BlockingDisk", blocking, disk},
          {"BlockingMemory", blocking, "/dev/shm"}};
}
INSTANTIATE_TEST_SUITE_P(Queues, BlockFilesTest, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(BlockFilesTest, FilesOfAllSizesComeBack) {
  SKIP_WITHOUT_FILES();
  const Image image(20_MiB + 4096, testing::test_seed());
  for (const uint64_t bytes : {size_t{0}, size_t{1}, size_t{511}, size_t{512}, size_t{4095},
                               size_t{4096}, size_t{4097}, 4_MiB - 1, 4_MiB, 4_MiB + 1, 20_MiB}) {
    const uint64_t padded = (bytes + 4095) / 4096 * 4096;
    round_trip("padded", image.first(padded), bytes);
    round_trip("exact" + std::to_string(bytes), image.first(bytes), bytes);
  }
}

TEST_P(BlockFilesTest, MemoryWithoutAlignmentIsAsGood) {
  SKIP_WITHOUT_FILES();
  const Image image(9_MiB + 77, testing::test_seed(), 13);
  round_trip("a", image.first(9_MiB + 77), 9_MiB + 77);
  round_trip("a", image.first(5000), 4999);
}

TEST_P(BlockFilesTest, ManyMoreBlocksThanAreInFlight) {
  SKIP_WITHOUT_FILES();
  files_ = make({.block_bytes = 4096, .blocks_in_flight = 3});
  const Image image(1_MiB + 100, testing::test_seed());
  round_trip("a", image.first(1_MiB + 100), 1_MiB + 100);
}

TEST_P(BlockFilesTest, AnOldFileIsOverwrittenInPlaceWhateverItsSize) {
  SKIP_WITHOUT_FILES();
  const Image old(9_MiB, testing::test_seed());
  const Image image(6_MiB, testing::test_seed() + 1);
  for (const uint64_t old_bytes : {size_t{0}, size_t{3}, 1_MiB, 5_MiB + 1, 9_MiB}) {
    put(path("slot"), old.first(old_bytes));
    struct stat before = {};
    ASSERT_EQ(::stat(path("slot").c_str(), &before), 0);
    round_trip("slot", image.first(6_MiB), 5_MiB + 4001);
    struct stat after = {};
    ASSERT_EQ(::stat(path("slot").c_str(), &after), 0);
    EXPECT_EQ(before.st_ino, after.st_ino);
  }
  round_trip("slot", image.first(0), 0);
}

TEST_P(BlockFilesTest, RangesOfAnyAlignmentAreRead) {
  SKIP_WITHOUT_FILES();
  const Image image(12_MiB + 1234, testing::test_seed());
  const base::ByteSpan bytes = image.first(12_MiB + 1234);
  ASSERT_OK(files_->write({.path = path("a"), .image = bytes, .file_bytes = bytes.size()}));
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 20; ++round) {
    // The memory of a range fits that of the file, or does not, at every place.
    Image back(bytes.size(), 5, random.uniform_int(2) == 0 ? 0 : random.uniform_int(512));
    std::vector<ReadRange> ranges;
    const uint64_t largest = uint64_t{1} << (3 + random.uniform_int(22));
    for (uint64_t at = random.uniform_int(largest); at < bytes.size();) {
      const uint64_t size = std::min<uint64_t>(random.uniform_int(largest), bytes.size() - at);
      ranges.push_back({.offset = at, .to = back.bytes().subspan(at, size)});
      at += size + (random.uniform_int(3) == 0 ? 0 : random.uniform_int(largest));
      if (ranges.size() > 3000) break;
    }
    ASSERT_OK(files_->read(path("a"), ranges, nullptr));
    for (const ReadRange& range : ranges) {
      ASSERT_TRUE(equal(range.to, bytes.subspan(range.offset, range.to.size())))
          << "round " << round << ", at " << range.offset << ", " << range.to.size() << " bytes";
    }
  }
}

TEST_P(BlockFilesTest, OnlyTheRangesAreTouched) {
  SKIP_WITHOUT_FILES();
  const Image image(1_MiB, testing::test_seed());
  ASSERT_OK(files_->write({.path = path("a"), .image = image.first(1_MiB), .file_bytes = 1_MiB}));
  std::vector<std::byte> back(1_MiB, std::byte{7});
  const std::vector<ReadRange> ranges = {
      {.offset = 10, .to = base::MutableByteSpan(back).subspan(10, 5)},
      {.offset = 20, .to = base::MutableByteSpan(back).subspan(20, 300'000)},
      {.offset = 500'000, .to = {}},
      {.offset = 700'000, .to = base::MutableByteSpan(back).subspan(700'000, 1)}};
  ASSERT_OK(files_->read(path("a"), ranges, nullptr));
  std::vector<std::byte> wanted(1_MiB, std::byte{7});
  for (const ReadRange& r : ranges) {
    if (!r.to.empty()) {
      std::memcpy(wanted.data() + r.offset, image.first(1_MiB).data() + r.offset, r.to.size());
    }
  }
  EXPECT_TRUE(equal(back, wanted));
  EXPECT_OK(files_->read(path("a"), {}, nullptr));
}

TEST_P(BlockFilesTest, ProgressEndsAtTheSizeOfTheFile) {
  SKIP_WITHOUT_FILES();
  const Image image(9_MiB, testing::test_seed());
  std::vector<uint64_t> told;
  ASSERT_OK(files_->write({.path = path("a"),
                           .image = image.first(9_MiB),
                           .file_bytes = 9_MiB - 5,
                           .on_progress = [&](uint64_t done) { told.push_back(done); }}));
  ASSERT_EQ(told.size(), 3u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 9_MiB - 5);
}

TEST_P(BlockFilesTest, ItsModeSaysHowTheFileIsReached) {
  SKIP_WITHOUT_FILES();
  const std::string queue = GetParam().name.starts_with("Uring") ? "io_uring, " : "blocking, ";
  EXPECT_EQ(files_->mode(), queue + "no file yet");
  const Image image(4096);
  ASSERT_OK(files_->write({.path = path("a"), .image = image.first(4096), .file_bytes = 4096}));
  if (GetParam().parent == "/dev/shm") {
    EXPECT_EQ(files_->mode(), queue + "buffered (tmpfs)");
  } else {
    EXPECT_THAT(files_->mode(), StartsWith(queue));
    std::printf("%s: %s\n", GetParam().parent.c_str(), files_->mode().c_str());
  }
}

TEST_P(BlockFilesTest, AMissingFolderIsNamed) {
  SKIP_WITHOUT_FILES();
  const Image image(4096);
  const WriteFile request = {.path = path("no/a"), .image = image.first(4096), .file_bytes = 4096};
  EXPECT_THAT(files_->write(request), StatusIs(StatusCode::kNotFound, HasSubstr("no/a")));
  EXPECT_THAT(files_->read(path("no/a"), {}, nullptr),
              StatusIs(StatusCode::kNotFound, HasSubstr("no/a")));
}

TEST_P(BlockFilesTest, WhatIsNoFileIsRefused) {
  SKIP_WITHOUT_FILES();
  std::filesystem::create_directory(path("d"));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const Image image(4096);
  for (const char* name : {"d", "pipe"}) {
    EXPECT_THAT(files_->read(path(name), {}, nullptr),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(path(name))));
  }
  const WriteFile request = {.path = path("d"), .image = image.first(4096), .file_bytes = 4096};
  EXPECT_THAT(files_->write(request), StatusIs(StatusCode::kInvalidArgument, HasSubstr("d: ")));
}

TEST_P(BlockFilesTest, AFileThatMayNotBeWrittenIsAFailedPrecondition) {
  SKIP_WITHOUT_FILES();
  put(path("a"), {});
  ASSERT_EQ(::chmod(path("a").c_str(), 0444), 0);
  const Image image(4096);
  // Root may write everything: is somebody else meanwhile.
  const uid_t user = ::geteuid();
  ASSERT_EQ(::seteuid(user == 0 ? 65534 : user), 0);
  const base::Status status =
      files_->write({.path = path("a"), .image = image.first(4096), .file_bytes = 4096});
  ASSERT_EQ(::seteuid(user), 0);
  EXPECT_THAT(status, StatusIs(StatusCode::kFailedPrecondition, HasSubstr(path("a"))));
}

TEST_P(BlockFilesTest, AShortFileTellsBothSizes) {
  SKIP_WITHOUT_FILES();
  const Image image(5000, testing::test_seed());
  put(path("a"), image.first(5000));
  Image back(6000);
  const std::vector<ReadRange> ranges = {{.offset = 0, .to = back.bytes().first(10)},
                                         {.offset = 100, .to = back.bytes().subspan(100, 4901)}};
  EXPECT_THAT(files_->read(path("a"), ranges, nullptr),
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr(path("a")), HasSubstr("5000"), HasSubstr("5001"))));
}

TEST_P(BlockFilesTest, LeavesWhenTold) {
  SKIP_WITHOUT_FILES();
  files_ = make({.block_bytes = 4096, .blocks_in_flight = 2});
  Image image(1_MiB, testing::test_seed());
  std::atomic<bool> leave = false;
  uint64_t told = 0;
  const WriteFile request = {.path = path("a"),
                             .image = image.first(1_MiB),
                             .file_bytes = 1_MiB,
                             .leave = &leave,
                             .on_progress = [&](uint64_t done) {
                               told = done;
                               leave = done >= 3 * 4096;
                             }};
  EXPECT_THAT(files_->write(request), StatusIs(StatusCode::kCancelled, HasSubstr(path("a"))));
  EXPECT_LE(told, 5 * 4096u);
  const ReadRange range = {.offset = 0, .to = image.bytes().first(4096)};
  EXPECT_THAT(files_->read(path("a"), {&range, 1}, &leave), StatusIs(StatusCode::kCancelled));
  leave = false;
  EXPECT_OK(files_->read(path("a"), {&range, 1}, &leave));
}

TEST_P(BlockFilesTest, ALimitOfTheProcessIsToldWithItsPath) {
  SKIP_WITHOUT_FILES();
  const Image image(64_KiB);
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {.rlim_cur = 8192, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const base::Status status =
      files_->write({.path = path("a"), .image = image.first(64_KiB), .file_bytes = 64_KiB});
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted,
                               AllOf(HasSubstr(path("a")), HasSubstr("65536"))));
}

}  // namespace
}  // namespace perdure::checkpoint::blocks
