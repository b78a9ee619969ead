#include "chaos/sim_files.h"

#include <set>
#include <string>

#include "tests/testing/matchers.h"

namespace perdure::chaos {
namespace {

using namespace base::literals;
using base::OpenMode;
using base::Status;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SimFiles make_files(const SimDiskOptions& options, uint64_t stream = 0) {
  return SimFiles(options, base::SeededRandom(testing::test_seed(), stream));
}

Status write(SimFiles& files, std::string_view path, std::string_view text) {
  ASSIGN_OR_RETURN(const auto file, files.open(path, OpenMode::kTruncate));
  return file->pwrite(0, base::as_byte_span(text));
}

std::string read(SimFiles& files, std::string_view path) {
  const auto bytes = base::read_file(files, path, 64_MiB);
  return bytes.is_ok() ? std::string(base::as_text(*bytes)) : bytes.status().to_string();
}

void power_cycle(SimFiles& files) {
  files.disconnect();
  files.lose_power();
  files.reconnect();
}

TEST(SimFilesTest, WhatWasNotSyncedIsLost) {
  SimFiles files = make_files({.keep_unsynced = 0});
  ASSERT_OK(write(files, "a", "one"));
  {
    ASSERT_OK_AND_ASSIGN(const auto file, files.open("b", OpenMode::kTruncate));
    ASSERT_OK(file->pwrite(0, base::as_byte_span("synced")));
    ASSERT_OK(file->sync());
    ASSERT_OK(files.sync_dir("/"));
    ASSERT_OK(file->pwrite(0, base::as_byte_span("NOT!")));
  }
  ASSERT_OK(write(files, "c", "late"));
  power_cycle(files);
  EXPECT_THAT(files.list("/").value(), ElementsAre("a", "b"));
  EXPECT_EQ(read(files, "a"), "");  // its name was synced, its contents were not
  EXPECT_EQ(read(files, "b"), "synced");
  EXPECT_EQ(files.used_bytes(), 6u);
}

TEST(SimFilesTest, ARenameIsDurableAfterItsDirectoryIsSynced) {
  for (const bool sync_dir : {false, true}) {
    SimFiles files = make_files({.keep_unsynced = 0});
    ASSERT_OK(base::replace_file(files, "m", base::as_byte_span("old")));
    ASSERT_OK_AND_ASSIGN(const auto file, files.open("m.tmp", OpenMode::kTruncate));
    ASSERT_OK(file->pwrite(0, base::as_byte_span("new")));
    ASSERT_OK(file->sync());
    ASSERT_OK(files.rename({.from = "m.tmp", .to = "m"}));
    if (sync_dir) {
      ASSERT_OK(files.sync_dir("."));
    }
    power_cycle(files);
    EXPECT_EQ(read(files, "m"), sync_dir ? "new" : "old");
  }
}

TEST(SimFilesTest, ARemovalIsUndoneUnlessSynced) {
  SimFiles files = make_files({.keep_unsynced = 0});
  ASSERT_OK(base::replace_file(files, "a", base::as_byte_span("kept")));
  ASSERT_OK(files.remove("a"));
  EXPECT_EQ(files.used_bytes(), 0u);
  power_cycle(files);
  EXPECT_EQ(read(files, "a"), "kept");
  ASSERT_OK(files.remove("a"));
  ASSERT_OK(files.sync_dir("/"));
  power_cycle(files);
  EXPECT_THAT(files.list("/").value(), IsEmpty());
}

TEST(SimFilesTest, WritesTearAtSectors) {
  std::set<std::string> outcomes;
  for (uint64_t stream = 0; stream < 200; ++stream) {
    SimFiles files = make_files({.sector_bytes = 4, .keep_unsynced = 0.5}, stream);
    ASSERT_OK(base::replace_file(files, "a", base::as_byte_span("aaaabbbb")));
    {
      ASSERT_OK_AND_ASSIGN(const auto file, files.open("a", OpenMode::kReadWrite));
      ASSERT_OK(file->pwrite(0, base::as_byte_span("AAAABBBBCC")));
    }
    power_cycle(files);
    outcomes.insert(read(files, "a"));
  }
  const std::string hole("\0\0", 2);
  const std::set<std::string> expected = {"aaaabbbb",        "AAAAbbbb",        "aaaaBBBB",
                                          "AAAABBBB",        "aaaabbbb" + hole, "AAAAbbbb" + hole,
                                          "aaaaBBBB" + hole, "AAAABBBB" + hole, "aaaabbbbCC",
                                          "AAAAbbbbCC",      "aaaaBBBBCC",      "AAAABBBBCC"};
  EXPECT_EQ(outcomes, expected);
}

TEST(SimFilesTest, AFullDiskTakesWhatFits) {
  SimFiles files = make_files({.capacity_bytes = 10});
  ASSERT_OK(write(files, "a", "123456"));
  ASSERT_OK_AND_ASSIGN(const auto file, files.open("b", OpenMode::kTruncate));
  EXPECT_THAT(file->pwrite(0, base::as_byte_span("12345")),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("disk of 10 bytes")));
  EXPECT_EQ(read(files, "b"), "1234");
  EXPECT_THAT(file->truncate(11), StatusIs(StatusCode::kResourceExhausted));
  ASSERT_OK(files.remove("a"));
  EXPECT_OK(file->append(base::as_byte_span("567890")));
  EXPECT_EQ(files.used_bytes(), 10u);
}

TEST(SimFilesTest, PlannedFaultsStrikeWhereTheyShould) {
  SimFiles files = make_files({});
  files.add_fault({.action = FileAction::kRead,
                   .path_part = "ckpt/",
                   .skip = 1,
                   .count = 2,
                   .error = base::data_loss("bad sector")});
  ASSERT_OK(files.make_dirs("ckpt"));
  ASSERT_OK(write(files, "ckpt/a", "x"));
  ASSERT_OK(write(files, "b", "y"));
  EXPECT_EQ(read(files, "ckpt/a"), "x");
  EXPECT_EQ(read(files, "b"), "y");
  EXPECT_EQ(read(files, "ckpt/a"), "data loss: ckpt/a: bad sector");
  EXPECT_EQ(read(files, "b"), "y");
  EXPECT_EQ(read(files, "ckpt/a"), "data loss: ckpt/a: bad sector");
  EXPECT_EQ(read(files, "ckpt/a"), "x");
}

TEST(SimFilesTest, AFailedSyncLeavesDataUnsynced) {
  SimFiles files = make_files({.keep_unsynced = 0});
  files.add_fault({.action = FileAction::kSync, .path_part = "a", .error = base::data_loss("EIO")});
  ASSERT_OK_AND_ASSIGN(const auto file, files.open("a", OpenMode::kTruncate));
  ASSERT_OK(file->pwrite(0, base::as_byte_span("x")));
  EXPECT_THAT(file->sync(), StatusIs(StatusCode::kDataLoss));
  ASSERT_OK(files.sync_dir("/"));
  power_cycle(files);
  EXPECT_EQ(read(files, "a"), "");
}

TEST(SimFilesTest, FlipsBits) {
  SimFiles files = make_files({.keep_unsynced = 0});
  ASSERT_OK(base::replace_file(files, "a", base::as_byte_span("abc")));
  ASSERT_OK(files.flip_bit({.path = "a", .offset = 1, .bit = 5}));
  power_cycle(files);
  EXPECT_EQ(read(files, "a"), "aBc");
  EXPECT_THAT(files.flip_bit({.path = "a", .offset = 3}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(files.flip_bit({.path = "b"}), StatusIs(StatusCode::kNotFound));
}

TEST(SimFilesTest, ADeadHostReachesNothing) {
  SimFiles files = make_files({});
  ASSERT_OK_AND_ASSIGN(const auto file, files.open("a", OpenMode::kTruncate));
  files.disconnect();
  EXPECT_THAT(file->append(base::as_byte_span("x")), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(files.open("a", OpenMode::kRead), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(files.stat("a"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(files.list("/"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(files.make_dirs("d"), StatusIs(StatusCode::kUnavailable));
  files.reconnect();
  EXPECT_THAT(file->sync(), StatusIs(StatusCode::kUnavailable));  // opened in an earlier life
  EXPECT_THAT(file->size(), StatusIs(StatusCode::kUnavailable));
  EXPECT_OK(files.stat("a"));
}

// The way to test a commit protocol: stop it before each of its changes, lose the power, look.
TEST(SimFilesTest, ReplaceFileIsOldOrNewWhereverItIsCut) {
  for (uint64_t stream = 0; stream < 50; ++stream) {
    for (uint64_t cut = 0; cut < 7; ++cut) {
      SimFiles files = make_files({.sector_bytes = 2, .keep_unsynced = 0.5}, stream);
      ASSERT_OK(base::replace_file(files, "m", base::as_byte_span("old text")));
      files.disconnect_after(cut);
      const Status status = base::replace_file(files, "m", base::as_byte_span("the new text"));
      EXPECT_EQ(status.is_ok(), cut >= 4) << cut;
      power_cycle(files);
      const std::string text = read(files, "m");
      if (status.is_ok()) {
        EXPECT_EQ(text, "the new text");
      } else {
        EXPECT_TRUE(text == "old text" || text == "the new text") << text;
      }
    }
  }
}

}  // namespace
}  // namespace perdure::chaos
