// One set of cases for every implementation of base/file_system.h.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "base/posix_files.h"
#include "chaos/sim_files.h"
#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Case {
  const char* name;
  std::function<std::unique_ptr<FileSystem>()> make;
};

class FileConformanceTest : public ::testing::TestWithParam<Case> {
 protected:
  FileConformanceTest() : files_(GetParam().make()) {
    root_ = ::testing::TempDir() + "/perdure_file_conformance";
    std::filesystem::remove_all(root_);
    CHECK(files_->make_dirs(root_).is_ok());
  }
  ~FileConformanceTest() override { std::filesystem::remove_all(root_); }

  std::string path(const std::string& name) const { return root_ + "/" + name; }
  void write(const std::string& name, std::string_view text) {
    ASSERT_OK_AND_ASSIGN(const auto file, files_->open(path(name), OpenMode::kTruncate));
    ASSERT_OK(file->pwrite(0, as_byte_span(text)));
  }
  std::string read(const std::string& name) {
    const auto bytes = read_file(*files_, path(name), 1_MiB);
    return bytes.is_ok() ? std::string(as_text(*bytes)) : bytes.status().to_string();
  }

  std::unique_ptr<FileSystem> files_;
  std::string root_;
};

INSTANTIATE_TEST_SUITE_P(FileSystems, FileConformanceTest,
                         ::testing::Values(Case{"Sim",
                                                []() -> std::unique_ptr<FileSystem> {
                                                  return std::make_unique<chaos::SimFiles>(
                                                      chaos::SimDiskOptions{},
                                                      SeededRandom(testing::test_seed()));
                                                }},
                                           Case{"Posix",
                                                []() -> std::unique_ptr<FileSystem> {
                                                  return std::make_unique<PosixFiles>();
                                                }}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(FileConformanceTest, WritesAtOffsetsAndReadsToTheEnd) {
  ASSERT_OK_AND_ASSIGN(const auto file, files_->open(path("a"), OpenMode::kCreateNew));
  ASSERT_OK(file->pwrite(4, as_byte_span("late")));
  ASSERT_OK(file->pwrite(0, as_byte_span("soon")));
  ASSERT_OK(file->append(as_byte_span("!")));
  ASSERT_OK_AND_ASSIGN(const uint64_t size_bytes, file->size());
  EXPECT_EQ(size_bytes, 9u);
  std::string text(20, '.');
  ASSERT_OK_AND_ASSIGN(const size_t read_bytes,
                       file->pread(2, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(text.substr(0, read_bytes), "onlate!");
  ASSERT_OK_AND_ASSIGN(const size_t beyond,
                       file->pread(99, std::as_writable_bytes(std::span(text))));
  EXPECT_EQ(beyond, 0u);
  EXPECT_OK(file->sync());
  ASSERT_OK(file->truncate(3));
  EXPECT_EQ(read("a"), "soo");
  ASSERT_OK(file->truncate(5));
  EXPECT_EQ(read("a"), std::string("soo\0\0", 5));
}

TEST_P(FileConformanceTest, OpenModesDoWhatTheySay) {
  EXPECT_THAT(files_->open(path("a"), OpenMode::kRead), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(files_->open(path("a"), OpenMode::kReadWrite), StatusIs(StatusCode::kNotFound));
  write("a", "one");
  EXPECT_THAT(files_->open(path("a"), OpenMode::kCreateNew), StatusIs(StatusCode::kAlreadyExists));
  {
    ASSERT_OK_AND_ASSIGN(const auto file, files_->open(path("a"), OpenMode::kAppend));
    ASSERT_OK(file->append(as_byte_span("two")));
  }
  {
    ASSERT_OK_AND_ASSIGN(const auto file, files_->open(path("a"), OpenMode::kReadWrite));
    ASSERT_OK(file->pwrite(0, as_byte_span("O")));
  }
  EXPECT_EQ(read("a"), "Onetwo");
  write("a", "x");
  EXPECT_EQ(read("a"), "x");
  EXPECT_THAT(files_->open(root_, OpenMode::kRead), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(files_->open(path("a/b"), OpenMode::kTruncate),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(files_->open(path("no/b"), OpenMode::kTruncate), StatusIs(StatusCode::kNotFound));
}

TEST_P(FileConformanceTest, AClosedFileRefuses) {
  write("a", "x");
  ASSERT_OK_AND_ASSIGN(const auto file, files_->open(path("a"), OpenMode::kReadWrite));
  ASSERT_OK(file->close());
  EXPECT_OK(file->close());
  std::array<std::byte, 1> one;
  EXPECT_THAT(file->pread(0, one), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file->pwrite(0, one), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file->append(one), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file->sync(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file->size(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(file->truncate(0), StatusIs(StatusCode::kFailedPrecondition));
}

TEST_P(FileConformanceTest, RenameReplacesFilesAndMovesDirectories) {
  write("a", "new");
  write("b", "old");
  ASSERT_OK(files_->rename({.from = path("a"), .to = path("b")}));
  EXPECT_EQ(read("b"), "new");
  EXPECT_THAT(files_->stat(path("a")), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(files_->make_dirs(path("d/e")));
  write("d/e/f", "deep");
  ASSERT_OK(files_->rename({.from = path("d"), .to = path("g")}));
  EXPECT_EQ(read("g/e/f"), "deep");
  EXPECT_OK(files_->sync_dir(root_));
  EXPECT_THAT(files_->rename({.from = path("no"), .to = path("x")}),
              StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(files_->rename({.from = path("b"), .to = path("g")}),
              StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK(files_->make_dirs(path("h")));
  EXPECT_THAT(files_->rename({.from = path("h"), .to = path("g")}),
              StatusIs(StatusCode::kAlreadyExists));
}

TEST_P(FileConformanceTest, DirectoriesListSorted) {
  ASSERT_OK(files_->make_dirs(path("d/e")));
  ASSERT_OK(files_->make_dirs(path("d/e")));
  EXPECT_THAT(files_->list(path("d/e")).value(), IsEmpty());
  write("d/c", "1");
  write("d/a", "12");
  EXPECT_THAT(files_->list(path("d")).value(), ElementsAre("a", "c", "e"));
  EXPECT_EQ(files_->stat(path("d/a"))->size_bytes, 2u);
  EXPECT_EQ(files_->stat(path("d"))->kind, FileKind::kDirectory);
  EXPECT_THAT(files_->list(path("no")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(files_->list(path("d/a")), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(files_->sync_dir(path("no")), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(files_->sync_dir(path("d/a")), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(files_->make_dirs(path("d/a")), StatusIs(StatusCode::kInvalidArgument));
}

TEST_P(FileConformanceTest, RemoveTakesFilesAndEmptyDirectories) {
  ASSERT_OK(files_->make_dirs(path("d")));
  write("d/a", "1");
  EXPECT_THAT(files_->remove(path("d")), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_OK(files_->remove(path("d/a")));
  EXPECT_OK(files_->remove(path("d")));
  EXPECT_THAT(files_->remove(path("d")), StatusIs(StatusCode::kNotFound));
}

TEST_P(FileConformanceTest, ReplaceFileIsWhole) {
  ASSERT_OK(replace_file(*files_, path("m"), as_byte_span("first")));
  ASSERT_OK(replace_file(*files_, path("m"), as_byte_span("2nd")));
  EXPECT_EQ(read("m"), "2nd");
  EXPECT_THAT(files_->list(root_).value(), ElementsAre("m"));
  EXPECT_THAT(read_file(*files_, path("m"), 2), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(replace_file(*files_, path("no/m"), {}), StatusIs(StatusCode::kNotFound));
}

TEST(ParentPathTest, CutsTheLastPart) {
  EXPECT_EQ(parent_path("/a/b"), "/a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
}

TEST(PosixFilesTest, NamesTheErrorsOfTheDevice) {
  EXPECT_EQ(errno_status(EIO, "read", "/x").code(), StatusCode::kDataLoss);
  EXPECT_EQ(errno_status(ENOSPC, "write", "/x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(errno_status(EROFS, "open", "/x").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(errno_status(ENOTTY, "open", "/x").code(), StatusCode::kInternal);
  PosixFiles files;
  ASSERT_OK_AND_ASSIGN(const auto full, files.open("/dev/full", OpenMode::kReadWrite));
  EXPECT_THAT(full->pwrite(0, as_byte_span("x")), StatusIs(StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace perdure::base
