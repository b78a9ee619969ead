// A history of saves, removals and faults of the disk, ended at each of its changes in turn. What
// was promised before the end must hold after it. On failure the text says seed, n and kind of
// disk.
//
// Row numbers (A1, C1, ...) are those of docs/decisions/0007-manifest-is-the-commit.md.

#include <map>
#include <set>

#include "chaos/sim_files.h"
#include "checkpoint/checkpoint_folder.h"
#include "tests/checkpoint/toy_save.h"
#include "tests/testing/matchers.h"

namespace perdure::checkpoint {
namespace {

using base::Status;
using base::StatusCode;
using chaos::FileAction;
using chaos::SimFiles;
using ::testing::AnyOf;
using testing::check_contents;
using ::testing::HasSubstr;
using testing::make_toy_save;
using testing::save_all;
using ::testing::StartsWith;
using testing::StatusIs;
using testing::ToySave;

constexpr std::string_view kRoot = "/data/ckpt";
constexpr std::string_view kNotes = "/data/ckpt/notes.txt";
constexpr std::string_view kTheirs = "/data/ckpt/step-12/theirs";

// What was promised so far.
struct Promises {
  std::set<SaveId> published;  // publish returned ok, and nothing has begun to remove it
  std::set<SaveId> uncertain;  // publish or removal has begun: there, whole, or not there
};

Status write_durably(SimFiles& files, std::string_view path, std::string_view text) {
  RETURN_IF_ERROR(files.make_dirs(base::parent_path(path)));
  ASSIGN_OR_RETURN(const auto file, files.open(path, base::OpenMode::kTruncate));
  RETURN_IF_ERROR(file->pwrite(0, base::as_byte_span(text)));
  RETURN_IF_ERROR(file->sync());
  for (std::string at(path); at != "/";) {
    at = base::parent_path(at);
    RETURN_IF_ERROR(files.sync_dir(at));
  }
  return Status::ok();
}

// One process. After an error of the disk it abandons what it was about and goes on, as long as the
// disk is there; `errors` has what it was told.
class Process {
 public:
  Process(SimFiles& files, Promises& promises)
      : files_(files), promises_(promises), folder_(files, std::string(kRoot)) {}

  const std::vector<Status>& errors() const { return errors_; }

  void run_history() {
    if (!retried([&] { return folder_.open(); })) return;
    save({.step = 10, .epoch = 1, .attempt = 1});
    save({.step = 20, .epoch = 1, .attempt = 2});
    leave_unfinished({.step = 30, .epoch = 1, .attempt = 3});
    abandon({.step = 30, .epoch = 1, .attempt = 3});
    save({.step = 30, .epoch = 1, .attempt = 4});
    leave_unfinished({.step = 40, .epoch = 2, .attempt = 5});
    fence_ = 3;
    publish_late({.step = 40, .epoch = 2, .attempt = 5});
    save({.step = 30, .epoch = 3, .attempt = 6});  // a step again
    save({.step = 40, .epoch = 3, .attempt = 7});
    clean({.keep_last = 2, .keep_every = 20});
    remove({.step = 20, .epoch = 1, .attempt = 2});
    save({.step = 50, .epoch = 3, .attempt = 8});
    leave_unfinished({.step = 60, .epoch = 3, .attempt = 9});
    clean({.keep_last = 1});
  }

 private:
  bool is_gone() const { return !files_.is_connected(); }

  bool note(const Status& status) {
    if (!status.is_ok() && !is_gone()) errors_.push_back(status);
    return status.is_ok();
  }

  // Faults of these tests strike once.
  template <typename Action>
  bool retried(const Action& action) {
    return note(action()) || (!is_gone() && note(action()));
  }

  void abandon(const SaveId& id) {
    if (!retried([&] { return folder_.abandon(id); })) {
      EXPECT_TRUE(is_gone()) << folder_name(id) << " can not be abandoned: " << errors_.back();
      return;
    }
    promises_.uncertain.erase(id);
  }

  void save(const SaveId& id) {
    if (is_gone()) return;
    promises_.uncertain.insert(id);
    if (note(save_all(files_, folder_, make_toy_save(id), fence_))) {
      promises_.uncertain.erase(id);
      promises_.published.insert(id);
    } else if (!is_gone()) {
      abandon(id);
    }
  }

  void leave_unfinished(const SaveId& id) {
    if (is_gone()) return;
    const base::Result<std::string> path = folder_.begin(id);
    if (!note(path.status())) return;
    const ToySave toy = make_toy_save(id);
    if (note(testing::write_files(files_, *path, toy))) {
      note(folder_.seal(id, toy.manifest.files));
    }
  }

  void publish_late(const SaveId& id) {
    if (is_gone()) return;
    EXPECT_THAT(folder_.publish(id, make_toy_save(id).manifest, fence_),
                StatusIs(StatusCode::kAborted));
  }

  void remove(const SaveId& id) {
    if (is_gone()) return;
    if (promises_.published.erase(id) > 0) promises_.uncertain.insert(id);
    abandon(id);
  }

  void clean(const RetentionRule& rule) {
    if (is_gone()) return;
    // Only the newest is promised to stay while this runs.
    Promises after = promises_;
    const SaveId newest = *promises_.published.rbegin();
    after.uncertain.insert(after.published.begin(), after.published.end());
    after.published = {newest};
    after.uncertain.erase(newest);
    std::swap(after, promises_);
    const auto removed = folder_.clean(rule, fence_, {});
    if (!note(removed.status())) return;
    promises_ = std::move(after);
    for (const SaveId& id : *removed) {
      promises_.published.erase(id);
      promises_.uncertain.erase(id);
    }
  }

  SimFiles& files_;
  Promises& promises_;
  CheckpointFolder folder_;
  uint64_t fence_ = 0;
  std::vector<Status> errors_;
};

std::string read_text(SimFiles& files, std::string_view path) {
  const auto bytes = base::read_file(files, path, 1000);
  return bytes.is_ok() ? std::string(base::as_text(*bytes)) : bytes.status().to_string();
}

// Gives what is committed.
std::vector<SaveId> check_promises(SimFiles& files, const Promises& promises) {
  EXPECT_EQ(read_text(files, kNotes), "mine");
  EXPECT_EQ(read_text(files, kTheirs), "mine too");
  CheckpointFolder folder(files, std::string(kRoot));
  const auto entries = folder.list();
  EXPECT_OK(entries);
  std::vector<SaveId> committed;
  if (!entries.is_ok()) return committed;
  for (const CheckpointFolder::Entry& entry : *entries) {
    EXPECT_OK(entry.problem) << folder_name(entry.id);
    if (!entry.committed) continue;
    committed.push_back(entry.id);
    EXPECT_TRUE(promises.published.contains(entry.id) || promises.uncertain.contains(entry.id))
        << folder_name(entry.id) << " was never published";
    EXPECT_OK(check_contents(files, folder, entry.id));
  }
  for (const SaveId& id : promises.published) {
    EXPECT_TRUE(std::count(committed.begin(), committed.end(), id) == 1)
        << folder_name(id) << " is lost";
  }
  const auto newest = folder.newest();
  if (committed.empty()) {
    EXPECT_THAT(newest, StatusIs(StatusCode::kNotFound));
  } else {
    EXPECT_TRUE(newest.is_ok() && *newest == committed.back());
  }
  return committed;
}

// The next process opens, cleans, and saves again; then the power goes without warning.
void check_next_process(SimFiles& files, const Promises& promises) {
  const std::vector<SaveId> before = check_promises(files, promises);
  CheckpointFolder folder(files, std::string(kRoot));
  ASSERT_OK(folder.open());
  ASSERT_OK(folder.clean({.keep_last = 1}, 100, {}));
  files.disconnect();
  files.lose_power();
  files.reconnect();
  // What it saw as the newest is what it has now, though all others are gone.
  const auto entries = folder.list();
  ASSERT_OK(entries);
  ASSERT_EQ(entries->size(), before.empty() ? 0u : 1u);
  for (const auto& entry : *entries) {
    EXPECT_TRUE(entry.committed && entry.id == before.back()) << folder_name(entry.id);
    EXPECT_OK(check_contents(files, folder, entry.id));
  }
  const SaveId next = {.step = 70, .epoch = 100, .attempt = 1};
  ASSERT_OK(save_all(files, folder, make_toy_save(next), 100));
  EXPECT_EQ(folder.newest().value(), next);
  EXPECT_OK(check_contents(files, folder, next));
}

SimFiles make_disk(double keep_unsynced, uint64_t seed, uint64_t capacity = uint64_t{1} << 40) {
  SimFiles files({.capacity_bytes = capacity, .keep_unsynced = keep_unsynced},
                 base::SeededRandom(seed));
  CHECK(write_durably(files, kNotes, "mine").is_ok());
  CHECK(write_durably(files, kTheirs, "mine too").is_ok());
  return files;
}

uint64_t change_count_of_history() {
  SimFiles files = make_disk(0, 1);
  Promises promises;
  const uint64_t before = files.change_count();
  Process(files, promises).run_history();
  CHECK_EQ(promises.published.size(), 1u);
  CHECK(promises.uncertain.empty());
  return files.change_count() - before;
}

// A1, A3, A6, C4: nothing is told that a power loss takes back, whatever the disk keeps of what was
// not synced.
TEST(CheckpointCrashTest, APowerLossAtAnyChangeKeepsWhatWasPromised) {
  const uint64_t changes = change_count_of_history();
  std::printf("%llu changes\n", static_cast<unsigned long long>(changes));
  for (const double keep_unsynced : {0.0, 0.5, 1.0}) {
    // Between 0 and 1 chance decides.
    const uint64_t seeds = keep_unsynced == 0.5 ? 4 : 1;
    for (uint64_t seed = testing::test_seed(); seed < testing::test_seed() + seeds; ++seed) {
      for (uint64_t n = 0; n <= changes; ++n) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", n " + std::to_string(n) + ", keep " +
                     std::to_string(keep_unsynced));
        SimFiles files = make_disk(keep_unsynced, seed);
        Promises promises;
        files.disconnect_after(n);
        Process(files, promises).run_history();
        ASSERT_EQ(files.is_connected(), n == changes);
        files.disconnect();
        files.lose_power();
        files.reconnect();
        check_next_process(files, promises);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// Only the process ends: the next one sees what was not synced, relies on it, and then the power
// goes.
TEST(CheckpointCrashTest, AKilledProcessThenAPowerLoss) {
  const uint64_t changes = change_count_of_history();
  for (const double keep_unsynced : {0.0, 0.5}) {
    for (uint64_t n = 0; n <= changes; ++n) {
      SCOPED_TRACE("seed " + std::to_string(testing::test_seed()) + ", n " + std::to_string(n) +
                   ", keep " + std::to_string(keep_unsynced));
      SimFiles files = make_disk(keep_unsynced, testing::test_seed());
      Promises promises;
      files.disconnect_after(n);
      Process(files, promises).run_history();
      files.disconnect();
      files.reconnect();
      check_next_process(files, promises);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// The process that cleans up after a crash is ended at each of its changes, too.
TEST(CheckpointCrashTest, APowerLossDuringTheCleaningAfterAPowerLoss) {
  const uint64_t changes = change_count_of_history();
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 800; ++round) {
    const uint64_t seed = random.next_u64();
    const uint64_t n = random.uniform_int(changes + 1);
    const uint64_t again = random.uniform_int(24);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", n " + std::to_string(n) + ", then " +
                 std::to_string(again));
    SimFiles files = make_disk(0.5, seed);
    Promises promises;
    files.disconnect_after(n);
    Process(files, promises).run_history();
    files.disconnect();
    files.lose_power();
    files.reconnect();
    const std::vector<SaveId> committed = check_promises(files, promises);
    files.disconnect_after(again);
    CheckpointFolder folder(files, std::string(kRoot));
    if (folder.open().is_ok()) (void)folder.clean({.keep_last = 1}, 100, {}).status().is_ok();
    files.disconnect();
    files.lose_power();
    files.reconnect();
    promises.uncertain.insert(promises.published.begin(), promises.published.end());
    promises.published.clear();
    if (!committed.empty()) promises.published = {committed.back()};
    check_next_process(files, promises);
    if (::testing::Test::HasFailure()) return;
  }
}

// Each kind of action once, beside the checkpoints.
Status do_each_once(SimFiles& files) {
  RETURN_IF_ERROR(files.make_dirs("/beside"));
  ASSIGN_OR_RETURN(const auto file, files.open("/beside/a", base::OpenMode::kTruncate));
  std::byte byte = {};
  RETURN_IF_ERROR(file->pwrite(0, {&byte, 1}));
  RETURN_IF_ERROR(file->pread(0, {&byte, 1}).status());
  RETURN_IF_ERROR(file->sync());
  RETURN_IF_ERROR(files.rename({.from = "/beside/a", .to = "/beside/b"}));
  RETURN_IF_ERROR(files.list("/beside").status());
  RETURN_IF_ERROR(files.remove("/beside/b"));
  return files.sync_dir("/beside");
}

uint64_t count_in_history(FileAction action) {
  constexpr uint64_t kSkip = 1000;
  SimFiles files = make_disk(0, 1);
  files.add_fault({.action = action, .skip = kSkip, .error = base::data_loss("here")});
  Promises promises;
  Process(files, promises).run_history();
  uint64_t after = 0;
  while (do_each_once(files).is_ok()) ++after;
  return kSkip - after;
}

// A4, C2, C5: each action on the disk fails once. The error is told, names a path, and what was
// committed before is as it was.
TEST(CheckpointFaultTest, AnyActionFailsOnce) {
  uint64_t runs = 0;
  for (const FileAction action : {FileAction::kOpen, FileAction::kRead, FileAction::kWrite,
                                  FileAction::kSync, FileAction::kRename, FileAction::kRemove,
                                  FileAction::kMakeDirs, FileAction::kList, FileAction::kSyncDir}) {
    const uint64_t count = count_in_history(action);
    ASSERT_GT(count, 0u);
    for (const Status& error :
         {base::resource_exhausted("no space left"), base::data_loss("I/O error"),
          base::failed_precondition("read-only file system")}) {
      for (uint64_t skip = 0; skip < count; ++skip, ++runs) {
        SCOPED_TRACE("action " + std::to_string(static_cast<int>(action)) + ", skip " +
                     std::to_string(skip) + ", " + error.to_string());
        SimFiles files = make_disk(0.5, testing::test_seed() + skip);
        files.add_fault({.action = action, .skip = skip, .error = error});
        Promises promises;
        Process process(files, promises);
        process.run_history();
        for (const Status& told : process.errors()) {
          EXPECT_THAT(told, StatusIs(error.code(), AnyOf(HasSubstr("/data"), StartsWith("/: "))));
          EXPECT_THAT(told.message(), HasSubstr(error.message()));
        }
        files.disconnect();
        files.lose_power();
        files.reconnect();
        check_next_process(files, promises);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
  std::printf("%llu runs\n", static_cast<unsigned long long>(runs));
}

// C1: a disk that is full at any byte of the save.
TEST(CheckpointFaultTest, AFullDiskLeavesTheEarlierCheckpointAndItsSpace) {
  const SaveId first = {.step = 10, .epoch = 1, .attempt = 1};
  const SaveId second = {.step = 20, .epoch = 1, .attempt = 2};
  uint64_t needed = 0;
  {
    SimFiles files = make_disk(0, 1);
    CheckpointFolder folder(files, std::string(kRoot));
    ASSERT_OK(folder.open());
    ASSERT_OK(save_all(files, folder, make_toy_save(first), 0));
    ASSERT_OK(save_all(files, folder, make_toy_save(second), 0));
    needed = files.used_bytes();
  }
  uint64_t failed = 0;
  for (uint64_t missing = 0; missing < needed; ++missing) {
    SCOPED_TRACE("missing " + std::to_string(missing));
    SimFiles files = make_disk(0.5, testing::test_seed() + missing, needed - missing);
    CheckpointFolder folder(files, std::string(kRoot));
    ASSERT_OK(folder.open());
    if (!save_all(files, folder, make_toy_save(first), 0).is_ok()) break;
    const uint64_t used = files.used_bytes();
    const Status status = save_all(files, folder, make_toy_save(second), 0);
    ASSERT_EQ(status.is_ok(), missing == 0);
    if (missing == 0) continue;
    ++failed;
    ASSERT_THAT(status, StatusIs(StatusCode::kResourceExhausted, HasSubstr(folder.path(second))));
    ASSERT_EQ(folder.newest().value(), first);
    ASSERT_OK(folder.abandon(second));
    ASSERT_EQ(files.used_bytes(), used);
    files.disconnect();
    files.lose_power();
    files.reconnect();
    ASSERT_OK(check_contents(files, folder, first));
    ASSERT_EQ(folder.list().value().size(), 1u);
  }
  EXPECT_GT(failed, 1000u);
}

}  // namespace
}  // namespace perdure::checkpoint
