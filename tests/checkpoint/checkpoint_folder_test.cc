// Row numbers (A1, C3, ...) are those of docs/decisions/0007-manifest-is-the-commit.md.

#include "checkpoint/checkpoint_folder.h"

#include <filesystem>

#include "base/posix_files.h"
#include "chaos/sim_files.h"
#include "tests/checkpoint/toy_save.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::OpenMode;
using base::Status;
using base::StatusCode;
using chaos::FileAction;
using chaos::SimFiles;
using ::testing::AllOf;
using testing::check_contents;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::make_toy_save;
using ::testing::Not;
using testing::save_all;
using testing::StatusIs;
using testing::ToySave;
using testing::write_files;

constexpr uint64_t kAttempt = 0x3fa94c210d5b6e88;

SaveId save_id(uint64_t step, uint64_t epoch = 1, uint64_t attempt = kAttempt) {
  return {.step = step, .epoch = epoch, .attempt = attempt};
}

class CheckpointFolderTest : public ::testing::Test {
 protected:
  CheckpointFolderTest()
      : files_({.keep_unsynced = 0}, base::SeededRandom(testing::test_seed())),
        folder_(files_, "/data/ckpt") {
    CHECK(folder_.open().is_ok());
  }

  Status save(const SaveId& id, uint64_t fence = 0) {
    return save_all(files_, folder_, make_toy_save(id), fence);
  }
  // All but the commit.
  Status save_unfinished(const SaveId& id) {
    ASSIGN_OR_RETURN(const std::string path, folder_.begin(id));
    const ToySave toy = make_toy_save(id);
    RETURN_IF_ERROR(write_files(files_, path, toy));
    return folder_.seal(id, toy.manifest.files);
  }
  Status write(const std::string& path, std::string_view text) {
    ASSIGN_OR_RETURN(const auto file, files_.open(path, OpenMode::kTruncate));
    return file->pwrite(0, base::as_byte_span(text));
  }
  std::string manifest_path(const SaveId& id) { return folder_.path(id) + "/MANIFEST"; }
  void fail_once(FileAction action, const std::string& path_part, Status error) {
    files_.add_fault({.action = action, .path_part = path_part, .error = std::move(error)});
  }
  void lose_power() {
    files_.disconnect();
    files_.lose_power();
    files_.reconnect();
  }
  std::vector<uint64_t> committed() {
    std::vector<uint64_t> steps;
    const auto entries = folder_.list();
    CHECK(entries.is_ok()) << entries.status();
    for (const auto& entry : *entries) {
      if (entry.committed) steps.push_back(entry.id.step);
    }
    return steps;
  }

  SimFiles files_;
  CheckpointFolder folder_;
};

TEST(FolderNameTest, LeadsBackAndForth) {
  EXPECT_EQ(folder_name({.step = 120, .epoch = 7, .attempt = kAttempt}),
            "step-000000000120.e7.3fa94c210d5b6e88");
  for (const SaveId& id :
       {SaveId{}, SaveId{1, 2, 3}, SaveId{~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}},
        SaveId{1'000'000'000'000, 10, 1}}) {
    EXPECT_EQ(parse_folder_name(folder_name(id)), id) << folder_name(id);
  }
}

// A11: names of others are no reason to fail.
TEST(FolderNameTest, TakesTheExactFormOnly) {
  for (const std::string_view name :
       {"", "step", "step-", "step-12", "step-000000000120.e7", "step-000000000120.e7.",
        "step-120.e7.3fa94c210d5b6e88", "step-0000000000120.e7.3fa94c210d5b6e88",
        "step-000000000120.e07.3fa94c210d5b6e88", "step-000000000120.e7.3FA94C210D5B6E88",
        "step-000000000120.e7.3fa94c210d5b6e8", "step-000000000120.e7.3fa94c210d5b6e88.tmp",
        "step-000000000120.e7.3fa94c210d5b6e88 ", "step-99999999999999999999.e7.3fa94c210d5b6e88",
        "step--00000000120.e7.3fa94c210d5b6e88", "step-+00000000120.e7.3fa94c210d5b6e88",
        "Step-000000000120.e7.3fa94c210d5b6e88", "x-step-000000000120.e7.3fa94c210d5b6e88"}) {
    EXPECT_EQ(parse_folder_name(name), std::nullopt) << name;
  }
}

TEST_F(CheckpointFolderTest, ASaveBecomesTheNewest) {
  ASSERT_OK(save(save_id(10)));
  ASSERT_OK(save(save_id(20)));
  lose_power();
  ASSERT_OK_AND_ASSIGN(const SaveId newest, folder_.newest());
  EXPECT_EQ(newest, save_id(20));
  ASSERT_OK_AND_ASSIGN(const SaveId older, folder_.at_step(10));
  EXPECT_OK(check_contents(files_, folder_, older));
  EXPECT_OK(check_contents(files_, folder_, newest));
  ASSERT_OK_AND_ASSIGN(const auto entries, folder_.list());
  ASSERT_THAT(entries, ::testing::SizeIs(2));
  uint64_t bytes = 0;
  for (const std::string& content : make_toy_save(save_id(10)).contents) bytes += content.size();
  EXPECT_EQ(entries[0].bytes, bytes);
  EXPECT_TRUE(entries[0].committed);
  EXPECT_OK(entries[0].problem);
}

TEST_F(CheckpointFolderTest, OrderIsThatOfNumbersNotOfNames) {
  ASSERT_OK(save(save_id(999'999'999'999, 10)));
  ASSERT_OK(save(save_id(1'000'000'000'000, 9)));
  EXPECT_THAT(committed(), ElementsAre(999'999'999'999, 1'000'000'000'000));
  EXPECT_EQ(folder_.newest().value().step, 1'000'000'000'000u);
  ASSERT_OK(save(save_id(1'000'000'000'000, 10)));
  EXPECT_EQ(folder_.newest().value().epoch, 10u);
  EXPECT_EQ(folder_.at_step(1'000'000'000'000).value().epoch, 10u);
}

// A3: the directories above are durable too, even when an earlier process made them and was killed.
TEST_F(CheckpointFolderTest, OpenMakesAllDirectoriesDurable) {
  ASSERT_OK(files_.make_dirs("/new/deep/ckpt"));
  CheckpointFolder folder(files_, "/new/deep/ckpt//");
  ASSERT_OK(folder.open());
  ASSERT_OK(save_all(files_, folder, make_toy_save(save_id(1)), 0));
  lose_power();
  EXPECT_OK(check_contents(files_, folder, save_id(1)));
}

TEST_F(CheckpointFolderTest, OpenTakesRelativePaths) {
  for (const std::string root : {"ckpt", "a/b", ".", "./c/"}) {
    CheckpointFolder folder(files_, root);
    ASSERT_OK(folder.open());
    ASSERT_OK(save_all(files_, folder, make_toy_save(save_id(1)), 0));
    lose_power();
    EXPECT_OK(check_contents(files_, folder, save_id(1))) << root;
  }
  EXPECT_THAT(CheckpointFolder(files_, "").path(save_id(1)), ::testing::StartsWith("./step-"));
}

TEST_F(CheckpointFolderTest, OpenFailsWhereItCanNotBe) {
  ASSERT_OK(write("/data/file", "x"));
  EXPECT_THAT(CheckpointFolder(files_, "/data/file").open(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("/data/file")));
  fail_once(FileAction::kMakeDirs, "/data/other", base::failed_precondition("read-only"));
  EXPECT_THAT(CheckpointFolder(files_, "/data/other").open(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("/data/other")));
  fail_once(FileAction::kSyncDir, "/data", base::data_loss("I/O error"));
  EXPECT_THAT(folder_.open(), StatusIs(StatusCode::kDataLoss, HasSubstr("/data")));
  // A directory of somebody else above, which we may not open.
  fail_once(FileAction::kSyncDir, "/", base::failed_precondition("no rights"));
  EXPECT_OK(folder_.open());
}

TEST_F(CheckpointFolderTest, ASaveBeginsOnlyOnce) {
  ASSERT_OK(folder_.begin(save_id(10)));
  EXPECT_THAT(folder_.begin(save_id(10)), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_OK(folder_.begin(save_id(10, 1, 5)));
  EXPECT_OK(folder_.begin(save_id(10, 2)));
}

// A16: the folder is there, durable, before any writer starts.
TEST_F(CheckpointFolderTest, TheFolderIsDurableWhenBeginReturns) {
  ASSERT_OK(folder_.begin(save_id(10)));
  lose_power();
  EXPECT_OK(files_.stat(folder_.path(save_id(10))));
}

TEST_F(CheckpointFolderTest, BeginTellsWhyItCanNot) {
  fail_once(FileAction::kMakeDirs, "step-", base::resource_exhausted("no space"));
  EXPECT_THAT(folder_.begin(save_id(10)),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("/data/ckpt/step-")));
  fail_once(FileAction::kSyncDir, "ckpt", base::data_loss("I/O error"));
  EXPECT_THAT(folder_.begin(save_id(10)), StatusIs(StatusCode::kDataLoss, HasSubstr("/data/ckpt")));
  fail_once(FileAction::kList, "step-", base::failed_precondition("no rights"));
  EXPECT_THAT(folder_.begin(save_id(20)), StatusIs(StatusCode::kFailedPrecondition));
  fail_once(FileAction::kList, "/data/ckpt", base::failed_precondition("no rights"));
  EXPECT_THAT(folder_.begin(save_id(20)), StatusIs(StatusCode::kFailedPrecondition));
  // Not made again below a mount point whose disk is gone.
  EXPECT_THAT(CheckpointFolder(files_, "/gone").begin(save_id(20)),
              StatusIs(StatusCode::kNotFound, HasSubstr("unmounted")));
  EXPECT_THAT(files_.stat("/gone"), StatusIs(StatusCode::kNotFound));
}

// C3: a file that is empty, or short, or not there.
TEST_F(CheckpointFolderTest, SealAndPublishCompareSizes) {
  const SaveId id = save_id(10);
  const ToySave toy = make_toy_save(id);
  ASSERT_OK_AND_ASSIGN(const std::string path, folder_.begin(id));
  ASSERT_OK(write_files(files_, path, toy));
  ASSERT_OK(folder_.seal(id, toy.manifest.files));
  const std::string shard = path + "/rank-0001.safetensors";
  ASSERT_OK(write(shard, ""));
  for (const Status& status :
       {folder_.seal(id, toy.manifest.files), folder_.publish(id, toy.manifest, 0)}) {
    EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss,
                                 HasSubstr("rank-0001.safetensors has 0 bytes and should have")));
  }
  ASSERT_OK(files_.remove(shard));
  for (const Status& status :
       {folder_.seal(id, toy.manifest.files), folder_.publish(id, toy.manifest, 0)}) {
    EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss,
                                 HasSubstr("rank-0001.safetensors is missing: it should have")));
  }
  ASSERT_OK(files_.make_dirs(shard));
  EXPECT_THAT(folder_.seal(id, toy.manifest.files),
              StatusIs(StatusCode::kDataLoss, HasSubstr("is missing")));
  EXPECT_THAT(committed(), IsEmpty());
}

TEST_F(CheckpointFolderTest, SealRefusesNamesThatLeadElsewhere) {
  ASSERT_OK(folder_.begin(save_id(10)));
  EXPECT_THAT(folder_.seal(save_id(10), {{.name = "../x"}}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("'../x' is no plain name")));
}

TEST_F(CheckpointFolderTest, SealTellsErrorsOfTheDisk) {
  const SaveId id = save_id(10);
  const ToySave toy = make_toy_save(id);
  ASSERT_OK(save_unfinished(id));
  fail_once(FileAction::kList, "rank-0001", base::failed_precondition("no rights"));
  EXPECT_THAT(folder_.seal(id, toy.manifest.files),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank-0001")));
  fail_once(FileAction::kSyncDir, "step-", base::data_loss("I/O error"));
  EXPECT_THAT(folder_.seal(id, toy.manifest.files),
              StatusIs(StatusCode::kDataLoss, HasSubstr("/data/ckpt/step-")));
}

// C11: nothing to write is a success.
TEST_F(CheckpointFolderTest, ASaveWithoutFilesIsASave) {
  const SaveId id = save_id(10);
  ASSERT_OK(folder_.begin(id));
  ASSERT_OK(folder_.seal(id, {}));
  ASSERT_OK(folder_.publish(id, {.step = 10, .epoch = 1, .attempt = kAttempt}, 0));
  lose_power();
  EXPECT_EQ(folder_.newest().value(), id);
}

TEST_F(CheckpointFolderTest, FilesThatNodesHaveNeedNotBeInTheFolder) {
  const SaveId id = save_id(10);
  ToySave toy = make_toy_save(id);
  for (auto& file : toy.manifest.files) file.nodes = {2};
  ASSERT_OK(folder_.begin(id));
  ASSERT_OK(folder_.seal(id, toy.manifest.files));
  ASSERT_OK(folder_.publish(id, toy.manifest, 0));
  EXPECT_EQ(folder_.newest().value(), id);
}

TEST_F(CheckpointFolderTest, AnEpochThatHasEndedDoesNotCommit) {
  const SaveId id = save_id(10, 7);
  ASSERT_OK(save_unfinished(id));
  EXPECT_THAT(
      folder_.publish(id, make_toy_save(id).manifest, 8),
      StatusIs(StatusCode::kAborted, AllOf(HasSubstr("epoch 7 has ended"), HasSubstr("epoch 8"))));
  EXPECT_THAT(committed(), IsEmpty());
  EXPECT_OK(folder_.publish(id, make_toy_save(id).manifest, 7));
  EXPECT_THAT(committed(), ElementsAre(10));
}

// A14: what is committed under a step is the state of that step. A18: nothing of another attempt.
TEST_F(CheckpointFolderTest, TheManifestIsOfThisSave) {
  const SaveId id = save_id(10);
  ASSERT_OK(save_unfinished(id));
  for (const SaveId& other : {save_id(11), save_id(10, 2), save_id(10, 1, 5)}) {
    EXPECT_THAT(
        folder_.publish(id, make_toy_save(other).manifest, 0),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr("manifest is of " + folder_name(other))));
  }
  EXPECT_THAT(committed(), IsEmpty());
}

TEST_F(CheckpointFolderTest, AManifestThatIsNotConsistentIsNotPublished) {
  const SaveId id = save_id(10);
  ASSERT_OK(save_unfinished(id));
  Manifest manifest = make_toy_save(id).manifest;
  manifest.tensors[0].chunks.clear();
  EXPECT_THAT(folder_.publish(id, manifest, 0),
              StatusIs(StatusCode::kDataLoss, HasSubstr("tensor 't0'")));
  EXPECT_THAT(files_.list(folder_.path(id)).value(), Not(::testing::Contains("MANIFEST.tmp")));
}

// A5: nothing that is committed is written again.
TEST_F(CheckpointFolderTest, ACommittedSaveIsNeverReplaced) {
  const SaveId id = save_id(10);
  ASSERT_OK(save(id));
  EXPECT_THAT(folder_.publish(id, make_toy_save(id).manifest, 0),
              StatusIs(StatusCode::kAlreadyExists, HasSubstr("published already")));
  EXPECT_THAT(folder_.begin(id), StatusIs(StatusCode::kAlreadyExists));
  EXPECT_OK(check_contents(files_, folder_, id));
}

// C2, C5: each error of the disk is told as what it is, once; nothing is tried again and trusted.
TEST_F(CheckpointFolderTest, PublishTellsErrorsOfTheDisk) {
  struct Case {
    FileAction action;
    Status error;
  };
  uint64_t attempt = 1;
  for (const Case& c : {Case{FileAction::kOpen, base::failed_precondition("read-only")},
                        Case{FileAction::kWrite, base::resource_exhausted("no space")},
                        Case{FileAction::kWrite, base::resource_exhausted("quota")},
                        Case{FileAction::kSync, base::data_loss("I/O error")},
                        Case{FileAction::kRename, base::data_loss("I/O error")},
                        Case{FileAction::kSyncDir, base::data_loss("I/O error")},
                        Case{FileAction::kList, base::data_loss("I/O error")}}) {
    const SaveId id = save_id(10, 1, attempt++);
    ASSERT_OK(save_unfinished(id));
    const bool is_of_folder = c.action == FileAction::kSyncDir;
    fail_once(c.action, is_of_folder ? folder_name(id) : "MANIFEST", c.error);
    EXPECT_THAT(
        folder_.publish(id, make_toy_save(id).manifest, 0),
        StatusIs(c.error.code(), AllOf(HasSubstr(folder_.path(id)), HasSubstr(c.error.message()))));
    EXPECT_OK(folder_.abandon(id));
    EXPECT_THAT(committed(), IsEmpty());
  }
}

TEST_F(CheckpointFolderTest, AbandonRemovesAllThatASaveHasLeft) {
  const uint64_t used = files_.used_bytes();
  const SaveId id = save_id(10);
  ASSERT_OK(save_unfinished(id));
  ASSERT_OK(write(folder_.path(id) + "/MANIFEST.tmp", "half"));
  ASSERT_OK(write(folder_.path(id) + "/rank-0009.safetensors.tmp", "half"));
  ASSERT_OK(folder_.abandon(id));
  EXPECT_EQ(files_.used_bytes(), used);
  lose_power();
  EXPECT_THAT(files_.list("/data/ckpt").value(), IsEmpty());
  EXPECT_OK(folder_.abandon(id));
  EXPECT_OK(CheckpointFolder(files_, "/gone").abandon(id));
}

TEST_F(CheckpointFolderTest, RemoveTellsErrorsOfTheDiskAndCanBeRepeated) {
  const SaveId id = save_id(10);
  struct Case {
    FileAction action;
    std::string part;
  };
  for (const Case& c :
       {Case{FileAction::kList, "step-"}, Case{FileAction::kRemove, "MANIFEST"},
        Case{FileAction::kSyncDir, "step-"}, Case{FileAction::kList, "rank-0001"},
        Case{FileAction::kRemove, "rank-0001"}, Case{FileAction::kSyncDir, "ckpt"}}) {
    ASSERT_OK(save(id));
    fail_once(c.action, c.part, base::data_loss("I/O error"));
    EXPECT_THAT(folder_.remove(id), StatusIs(StatusCode::kDataLoss, HasSubstr("/data/ckpt")));
    EXPECT_OK(folder_.abandon(id));
    EXPECT_THAT(files_.list("/data/ckpt").value(), IsEmpty());
  }
  EXPECT_THAT(folder_.remove(id), StatusIs(StatusCode::kNotFound));
  ASSERT_OK(write(folder_.path(id), "a file"));
  EXPECT_THAT(folder_.remove(id), StatusIs(StatusCode::kInvalidArgument, HasSubstr("is a file")));
}

// A6: what is not finished is never the newest.
TEST_F(CheckpointFolderTest, UnfinishedSavesAreNotCommitted) {
  ASSERT_OK(save(save_id(10)));
  ASSERT_OK(save_unfinished(save_id(20)));
  ASSERT_OK(write(folder_.path(save_id(20)) + "/MANIFEST.tmp",
                  testing::manifest_text(make_toy_save(save_id(20)).manifest)));
  EXPECT_EQ(folder_.newest().value(), save_id(10));
  ASSERT_OK_AND_ASSIGN(const auto entries, folder_.list());
  ASSERT_THAT(entries, ::testing::SizeIs(2));
  EXPECT_FALSE(entries[1].committed);
  EXPECT_OK(entries[1].problem);
  EXPECT_THAT(folder_.read(save_id(20)),
              StatusIs(StatusCode::kNotFound, HasSubstr("there is step 10; 1 unfinished save")));
}

// A8: what there is instead.
TEST_F(CheckpointFolderTest, SaysWhatThereIsInsteadOfTheNewest) {
  const auto why = [&] { return folder_.newest().status(); };
  EXPECT_THAT(why(), StatusIs(StatusCode::kNotFound,
                              HasSubstr("/data/ckpt: there is no committed checkpoint: the "
                                        "directory is empty")));
  ASSERT_OK(write("/data/ckpt/model.bin", "x"));
  ASSERT_OK(write("/data/ckpt/" + folder_name(save_id(5)), "a file"));
  EXPECT_THAT(why(), StatusIs(StatusCode::kNotFound,
                              AllOf(HasSubstr("only names of others ('model.bin', 'step-0"),
                                    HasSubstr("is it the right directory?"))));
  ASSERT_OK(save_unfinished(save_id(20)));
  EXPECT_THAT(why(), StatusIs(StatusCode::kNotFound,
                              AllOf(HasSubstr("1 unfinished save (never committed"),
                                    HasSubstr("step 20 of epoch 1"), Not(HasSubstr("others")))));
  ASSERT_OK(save_unfinished(save_id(30)));
  EXPECT_THAT(why(), StatusIs(StatusCode::kNotFound, HasSubstr("2 unfinished saves")));
  ASSERT_OK(save(save_id(40)));
  ASSERT_OK(files_.flip_bit({.path = manifest_path(save_id(40)), .offset = 9}));
  EXPECT_THAT(why(), StatusIs(StatusCode::kNotFound,
                              AllOf(HasSubstr("1 that can not be read: step 40 of epoch 1"),
                                    HasSubstr("was changed"))));
  EXPECT_THAT(CheckpointFolder(files_, "/gone").newest(),
              StatusIs(StatusCode::kNotFound, HasSubstr("/gone")));
}

TEST_F(CheckpointFolderTest, SaysWhichStepsThereAre) {
  for (uint64_t step = 1; step <= 15; ++step) ASSERT_OK(save(save_id(step)));
  ASSERT_OK(save(save_id(15, 2)));
  const std::string steps = "there are steps 3 more, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15";
  EXPECT_THAT(folder_.at_step(99),
              StatusIs(StatusCode::kNotFound,
                       AllOf(HasSubstr("/data/ckpt has no committed step 99"), HasSubstr(steps))));
  EXPECT_THAT(folder_.read(save_id(99)), StatusIs(StatusCode::kNotFound, HasSubstr(steps)));
}

// A2, E2: what is damaged is not committed, whatever is wrong with it.
TEST_F(CheckpointFolderTest, ADamagedSaveIsPassedOver) {
  const SaveId id = save_id(20);
  struct Case {
    std::function<Status()> damage;
    const char* says;
  };
  const std::string shard = folder_.path(id) + "/rank-0000.safetensors";
  const std::vector<Case> cases = {
      {[&] { return files_.flip_bit({.path = manifest_path(id), .offset = 99}); }, "was changed"},
      {[&] { return write(manifest_path(id), ""); }, "is cut"},
      {[&] { return write(shard, "short"); }, "has 5 bytes and should have"},
      {[&] { return files_.remove(shard); }, "is missing"},
      {[&] {
         return write(manifest_path(id),
                      testing::manifest_text(make_toy_save(save_id(21)).manifest));
       },
       "was the folder renamed?"}};
  ASSERT_OK(save(save_id(10)));
  for (const Case& c : cases) {
    ASSERT_OK(save(id));
    ASSERT_OK(c.damage());
    EXPECT_EQ(folder_.newest().value(), save_id(10));
    EXPECT_THAT(folder_.read(id), StatusIs(StatusCode::kDataLoss, HasSubstr(c.says)));
    EXPECT_THAT(folder_.at_step(20), StatusIs(StatusCode::kNotFound, HasSubstr(c.says)));
    EXPECT_THAT(folder_.list().value()[1].problem,
                StatusIs(StatusCode::kDataLoss, HasSubstr(c.says)));
    // A person decides about it, not retention.
    EXPECT_THAT(folder_.clean({}, 99, {}).value(), IsEmpty());
    ASSERT_OK(folder_.remove(id));
  }
}

// A checkpoint that may be good, but can not be read, is not taken for one that is not there.
TEST_F(CheckpointFolderTest, WhatCanNotBeReadNowIsNotPassedOver) {
  ASSERT_OK(save(save_id(10)));
  ASSERT_OK(save(save_id(20)));
  for (const Status& error :
       {base::failed_precondition("no rights"), base::resource_exhausted("too many open files"),
        base::unavailable("gone")}) {
    for (const FileAction action : {FileAction::kOpen, FileAction::kRead}) {
      const std::string part = folder_name(save_id(20)) + "/MANIFEST";
      fail_once(action, part, error);
      EXPECT_THAT(folder_.newest(), StatusIs(error.code(), HasSubstr(part)));
      fail_once(action, part, error);
      EXPECT_THAT(folder_.at_step(20), StatusIs(error.code(), HasSubstr(part)));
      fail_once(action, part, error);
      EXPECT_THAT(folder_.read(save_id(20)), StatusIs(error.code(), HasSubstr(part)));
      fail_once(action, part, error);
      const auto removed = folder_.clean({.keep_last = 1}, 99, {});
      if (removed.is_ok()) {
        EXPECT_THAT(*removed, IsEmpty());
      }
    }
  }
  // The others can be listed all the same.
  fail_once(FileAction::kOpen, folder_name(save_id(20)), base::failed_precondition("no rights"));
  ASSERT_OK_AND_ASSIGN(const auto entries, folder_.list());
  EXPECT_TRUE(entries[0].committed);
  EXPECT_THAT(entries[1].problem, StatusIs(StatusCode::kFailedPrecondition));
  fail_once(FileAction::kList, folder_name(save_id(20)), base::failed_precondition("no rights"));
  EXPECT_THAT(folder_.newest(), StatusIs(StatusCode::kFailedPrecondition));
  fail_once(FileAction::kList, "ckpt", base::failed_precondition("no rights"));
  EXPECT_THAT(folder_.list(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(committed(), ElementsAre(10, 20));
  EXPECT_EQ(folder_.newest().value(), save_id(20));
}

TEST_F(CheckpointFolderTest, ANewerVersionIsNeitherPassedOverNorRemoved) {
  const SaveId id = save_id(20);
  ASSERT_OK(save(save_id(10)));
  ASSERT_OK(save_unfinished(id));
  ASSERT_OK(write(manifest_path(id), testing::with_last_line("{\"new\": 1}\n", 2)));
  EXPECT_THAT(folder_.newest(), StatusIs(StatusCode::kUnimplemented,
                                         AllOf(HasSubstr("version 2"), HasSubstr("step-"))));
  EXPECT_THAT(folder_.at_step(20), StatusIs(StatusCode::kUnimplemented));
  EXPECT_OK(folder_.at_step(10));
  EXPECT_THAT(folder_.clean({.keep_last = 1}, 99, {}).value(), IsEmpty());
  ASSERT_OK(files_.remove(manifest_path(id)));
  ASSERT_OK(files_.make_dirs(manifest_path(id)));
  EXPECT_THAT(folder_.newest(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("directory")));
}

// A10, A17: what may be under way stays, what can not be any more goes.
TEST_F(CheckpointFolderTest, CleanRemovesLeftoversOfEpochsThatHaveEnded) {
  ASSERT_OK(save_unfinished(save_id(10, 3)));
  ASSERT_OK(folder_.begin(save_id(10, 4)));
  ASSERT_OK(folder_.begin(save_id(11, 5)));
  ASSERT_OK(folder_.begin(save_id(12, 6)));
  const std::vector<SaveId> in_use = {save_id(10, 4)};
  ASSERT_OK_AND_ASSIGN(const auto removed, folder_.clean({}, 5, in_use));
  EXPECT_THAT(removed, ElementsAre(save_id(10, 3)));
  EXPECT_THAT(files_.list("/data/ckpt").value(),
              ElementsAre(folder_name(save_id(10, 4)), folder_name(save_id(11, 5)),
                          folder_name(save_id(12, 6))));
}

TEST_F(CheckpointFolderTest, CleanAppliesRetention) {
  for (const uint64_t step : {10, 20, 30, 40, 50}) ASSERT_OK(save(save_id(step)));
  ASSERT_OK_AND_ASSIGN(const auto removed,
                       folder_.clean({.keep_last = 2, .keep_every = 20}, 1, {save_id(10)}));
  EXPECT_THAT(removed, ElementsAre(save_id(30)));
  lose_power();
  EXPECT_THAT(committed(), ElementsAre(10, 20, 40, 50));
  ASSERT_OK_AND_ASSIGN(const auto rest, folder_.clean({.keep_last = 0}, 1, {}));
  EXPECT_THAT(rest, ElementsAre(save_id(10), save_id(20), save_id(40)));
}

TEST_F(CheckpointFolderTest, OfAStepThatWasSavedTwiceTheNewestStays) {
  ASSERT_OK(save(save_id(10, 1)));
  ASSERT_OK(save(save_id(10, 2)));
  ASSERT_OK(save(save_id(20, 2)));
  ASSERT_OK_AND_ASSIGN(const auto removed, folder_.clean({}, 2, {}));
  EXPECT_THAT(removed, ElementsAre(save_id(10, 1)));
}

// A7, A11: names of others stay, also inside a folder of ours.
TEST_F(CheckpointFolderTest, NamesOfOthersStay) {
  for (const std::string name : {"step-12", "step-000000000001.e1.tmp", "latest", "notes.txt"}) {
    ASSERT_OK(write("/data/ckpt/" + name, "theirs"));
  }
  ASSERT_OK(files_.make_dirs("/data/ckpt/step-x/deep"));
  ASSERT_OK(save(save_id(10)));
  ASSERT_OK(save(save_id(20)));
  const std::string inside = folder_.path(save_id(10));
  ASSERT_OK(files_.make_dirs(inside + "/logs"));
  ASSERT_OK(write(inside + "/.nfs0001", "open elsewhere"));

  ASSERT_OK_AND_ASSIGN(const auto removed, folder_.clean({.keep_last = 1}, 99, {}));
  EXPECT_THAT(removed, ElementsAre(save_id(10)));
  EXPECT_THAT(folder_.clean({.keep_last = 1}, 99, {}).value(), IsEmpty());
  EXPECT_THAT(files_.list(inside).value(), ElementsAre(".nfs0001", "logs"));
  EXPECT_THAT(files_.list("/data/ckpt").value(),
              ElementsAre("latest", "notes.txt", "step-000000000001.e1.tmp",
                          folder_name(save_id(10)), folder_name(save_id(20)), "step-12", "step-x"));
  ASSERT_OK(files_.remove(inside + "/.nfs0001"));
  ASSERT_OK(files_.remove(inside + "/logs"));
  EXPECT_THAT(folder_.clean({.keep_last = 1}, 99, {}).value(), ElementsAre(save_id(10)));
}

TEST_F(CheckpointFolderTest, AFolderThatDoesNotGetEmptyStays) {
  ASSERT_OK(save(save_id(10)));
  // After the manifest and three files the folder itself.
  files_.add_fault({.action = FileAction::kRemove,
                    .path_part = folder_name(save_id(10)),
                    .skip = 4,
                    .error = base::already_exists("has contents")});
  EXPECT_OK(folder_.remove(save_id(10)));
  EXPECT_THAT(files_.list(folder_.path(save_id(10))).value(), IsEmpty());
  EXPECT_THAT(folder_.clean({}, 2, {}).value(), ElementsAre(save_id(10)));
}

TEST_F(CheckpointFolderTest, CleanTriesAllAndTellsTheFirstError) {
  for (const uint64_t step : {10, 20, 30}) ASSERT_OK(save(save_id(step)));
  fail_once(FileAction::kRemove, folder_name(save_id(10)), base::failed_precondition("no rights"));
  EXPECT_THAT(folder_.clean({.keep_last = 1}, 1, {}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr(folder_name(save_id(10)))));
  EXPECT_THAT(committed(), ElementsAre(10, 30));
  // What stays is made sure first.
  fail_once(FileAction::kSyncDir, folder_name(save_id(30)), base::data_loss("I/O error"));
  EXPECT_THAT(folder_.clean({.keep_last = 1}, 1, {}), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(committed(), ElementsAre(10, 30));
  EXPECT_THAT(CheckpointFolder(files_, "/gone").clean({}, 1, {}), StatusIs(StatusCode::kNotFound));
}

// The process that committed step 20 was killed between the rename and the sync of its folder: the
// next one sees step 20, and must not remove step 10 on its word before it is durable.
TEST_F(CheckpointFolderTest, CleanMakesDurableWhatItReliesOn) {
  ASSERT_OK(save(save_id(10)));
  ASSERT_OK(save_unfinished(save_id(20)));
  fail_once(FileAction::kSyncDir, folder_name(save_id(20)), base::unavailable("killed here"));
  EXPECT_THAT(folder_.publish(save_id(20), make_toy_save(save_id(20)).manifest, 0),
              StatusIs(StatusCode::kUnavailable));
  EXPECT_EQ(folder_.newest().value(), save_id(20));
  ASSERT_OK(folder_.clean({.keep_last = 1}, 1, {}));
  lose_power();
  EXPECT_THAT(committed(), ElementsAre(20));
}

// A7: a copy of the folder, made with ordinary tools, is what the original was.
TEST(CheckpointFolderPosixTest, ACopyIsACheckpoint) {
  namespace fs = std::filesystem;
  const std::string base = ::testing::TempDir() + "/perdure_checkpoint_folder";
  fs::remove_all(base);
  base::PosixFiles files;
  CheckpointFolder folder(files, base + "/from/ckpt");
  ASSERT_OK(folder.open());
  for (const uint64_t step : {10, 20}) {
    ASSERT_OK(save_all(files, folder, make_toy_save(save_id(step)), 0));
  }
  ASSERT_OK(folder.begin(save_id(30)));
  fs::copy(base + "/from", base + "/to", fs::copy_options::recursive);
  CheckpointFolder copy(files, base + "/to/ckpt");
  ASSERT_OK(copy.open());
  EXPECT_EQ(copy.newest().value(), save_id(20));
  EXPECT_OK(check_contents(files, copy, save_id(10)));
  EXPECT_OK(check_contents(files, copy, save_id(20)));
  EXPECT_THAT(copy.clean({.keep_last = 1}, 2, {}).value(), ElementsAre(save_id(30), save_id(10)));
  ASSERT_OK(copy.remove(save_id(20)));
  EXPECT_TRUE(fs::is_empty(base + "/to/ckpt"));
  EXPECT_EQ(folder.newest().value(), save_id(20));
  fs::remove_all(base);
}

TEST(CheckpointFolderPosixTest, ATooLongManifestIsNotRead) {
  const std::string root = ::testing::TempDir() + "/perdure_checkpoint_long";
  std::filesystem::remove_all(root);
  base::PosixFiles files;
  CheckpointFolder folder(files, root);
  ASSERT_OK(folder.open());
  ASSERT_OK_AND_ASSIGN(const std::string path, folder.begin(save_id(20)));
  ASSERT_OK_AND_ASSIGN(const auto file, files.open(path + "/MANIFEST", OpenMode::kCreateNew));
  ASSERT_OK(file->truncate(kManifestBytesMax + 1));  // a hole: no bytes of the disk
  EXPECT_THAT(folder.read(save_id(20)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("at most 1073741824")));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace perdure::checkpoint
