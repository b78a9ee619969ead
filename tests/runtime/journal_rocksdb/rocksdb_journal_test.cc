#include "runtime/journal_rocksdb/rocksdb_journal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/units.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::journal_rocksdb {
namespace {

namespace fs = std::filesystem;
using base::StatusCode;
using coordinator::Journal;
using coordinator::JournalRecord;
using coordinator::RecordKind;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

// Record `n` of a test: its payload says which it is.
JournalRecord record(uint32_t n) {
  const std::string text = "record " + std::to_string(n) + std::string(n % 300, 'x');
  const base::ByteSpan bytes = base::as_byte_span(text);
  return {.kind = static_cast<RecordKind>(1 + n % 7), .payload = {bytes.begin(), bytes.end()}};
}

void expect_records(const std::vector<JournalRecord>& records) {
  for (uint32_t n = 0; n < records.size(); ++n) {
    EXPECT_EQ(records[n].kind, record(n).kind) << n;
    EXPECT_EQ(records[n].payload, record(n).payload) << n;
  }
}

class RocksDbJournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "perdure_journal_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    folder_ = name + "/run/journal";
  }
  void TearDown() override { fs::remove_all(root_); }

  void write_records(uint32_t count) {
    auto journal = open_rocksdb_journal(folder_);
    ASSERT_OK(journal);
    for (uint32_t n = 0; n < count; ++n) ASSERT_OK((*journal)->append(record(n)));
  }
  std::vector<fs::path> files(const std::string& ending) const {
    std::vector<fs::path> list;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ending) list.push_back(entry.path());
    }
    return list;
  }
  // What a coordinator finds that starts now.
  base::Result<std::vector<JournalRecord>> read() const {
    ASSIGN_OR_RETURN(const auto journal, open_rocksdb_journal(folder_));
    return journal->read_all();
  }

  std::string root_;
  std::string folder_;
};

void flip_byte(const fs::path& path, size_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  const char byte = static_cast<char>(file.get());
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 0x20));
}

TEST_F(RocksDbJournalTest, ANewJournalIsEmptyAndMakesItsFolder) {
  ASSERT_OK_AND_ASSIGN(const auto journal, open_rocksdb_journal(folder_));
  ASSERT_OK_AND_ASSIGN(const auto records, journal->read_all());
  EXPECT_TRUE(records.empty());
}

TEST_F(RocksDbJournalTest, WhatWasAppendedIsReadNowAndLater) {
  for (uint32_t life = 0; life < 4; ++life) {
    ASSERT_OK_AND_ASSIGN(const auto journal, open_rocksdb_journal(folder_));
    for (uint32_t n = life * 300; n < (life + 1) * 300; ++n) ASSERT_OK(journal->append(record(n)));
    ASSERT_OK_AND_ASSIGN(const auto records, journal->read_all());
    EXPECT_EQ(records.size(), (life + 1) * 300);
    expect_records(records);
  }
}

TEST_F(RocksDbJournalTest, ASecondOpenerIsRefused) {
  ASSERT_OK_AND_ASSIGN(auto journal, open_rocksdb_journal(folder_));
  EXPECT_THAT(open_rocksdb_journal(folder_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another process")));
  ASSERT_OK(journal->append(record(0)));
  journal.reset();
  EXPECT_OK(open_rocksdb_journal(folder_));
}

TEST_F(RocksDbJournalTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(root_ + "/run") << "a file";
  EXPECT_THAT(open_rocksdb_journal(folder_),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr(folder_)));
}

// In the log of RocksDB, which is what a short run leaves.
TEST_F(RocksDbJournalTest, DamageInTheLogIsDataLoss) {
  write_records(200);
  const auto logs = files(".log");
  ASSERT_EQ(logs.size(), 1u);
  flip_byte(logs[0], fs::file_size(logs[0]) / 2);
  EXPECT_THAT(read(), StatusIs(StatusCode::kDataLoss));
}

// In a table, which is what a restart leaves.
TEST_F(RocksDbJournalTest, DamageInATableIsDataLoss) {
  write_records(200);
  ASSERT_OK(read());
  const auto tables = files(".sst");
  ASSERT_FALSE(tables.empty());
  flip_byte(tables[0], fs::file_size(tables[0]) / 3);
  EXPECT_THAT(read(), StatusIs(StatusCode::kDataLoss));
}

TEST_F(RocksDbJournalTest, AMissingTableIsDataLoss) {
  write_records(200);
  ASSERT_OK(read());
  for (const fs::path& table : files(".sst")) fs::remove(table);
  EXPECT_FALSE(read().is_ok());
}

// The log cut at any byte: a crash while it was written. What is left are the first records, whole.
TEST_F(RocksDbJournalTest, ATornEndIsNoDamage) {
  write_records(20);
  const std::string whole = folder_;
  for (size_t cut = 1; cut < 700; cut += 53) {
    folder_ = root_ + "/cut" + std::to_string(cut);
    fs::copy(whole, folder_);
    const auto logs = files(".log");
    ASSERT_EQ(logs.size(), 1u);
    fs::resize_file(logs[0], fs::file_size(logs[0]) - cut);
    ASSERT_OK_AND_ASSIGN(const auto records, read());
    EXPECT_LT(records.size(), 20u);
    expect_records(records);
    ASSERT_OK_AND_ASSIGN(const auto journal, open_rocksdb_journal(folder_));
    EXPECT_OK(journal->append(record(static_cast<uint32_t>(records.size()))));
  }
}

TEST_F(RocksDbJournalTest, ItIsSmallAndHasFewThreads) {
  ASSERT_OK_AND_ASSIGN(const auto journal, open_rocksdb_journal(folder_));
  for (uint32_t n = 0; n < 100; ++n) ASSERT_OK(journal->append(record(n)));
  uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) bytes += fs::file_size(entry.path());
  EXPECT_LT(bytes, 200'000u);
  const auto threads = std::distance(fs::directory_iterator("/proc/self/task"), {});
  EXPECT_LE(threads, 4);
}

// Where the child of the next test tells what was acknowledged.
constexpr int kAckDescriptor = 9;

// Run only as a child: appends in its working directory until it is killed.
TEST(RocksDbJournalChild, DISABLED_AppendsUntilItIsKilled) {
  auto journal = open_rocksdb_journal("journal");
  ASSERT_OK(journal);
  ASSERT_OK_AND_ASSIGN(const auto records, (*journal)->read_all());
  for (uint32_t n = static_cast<uint32_t>(records.size());; ++n) {
    ASSERT_OK((*journal)->append(record(n)));
    const uint32_t count = n + 1;
    ASSERT_EQ(write(kAckDescriptor, &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  }
}

[[noreturn]] void become_child(const char* self, const std::string& folder, int ack) {
  const int silent = open("/dev/null", O_WRONLY);
  if (chdir(folder.c_str()) != 0 || dup2(silent, 1) < 0 || dup2(ack, kAckDescriptor) < 0) _exit(1);
  execl(self, self, "--gtest_filter=RocksDbJournalChild.*", "--gtest_also_run_disabled_tests",
        static_cast<char*>(nullptr));
  _exit(1);
}

// Starts a child, kills it after `acks` more records, gives the last that it had acknowledged.
uint32_t append_and_kill(const std::string& folder, uint32_t acks) {
  const std::string self = fs::read_symlink("/proc/self/exe").string();
  int ends[2];
  CHECK_EQ(pipe(ends), 0);
  const pid_t child = fork();
  CHECK_GE(child, 0);
  if (child == 0) become_child(self.c_str(), folder, ends[1]);
  close(ends[1]);
  uint32_t last = 0;
  uint32_t heard = 0;
  uint32_t count = 0;
  while (read(ends[0], &count, sizeof(count)) == static_cast<ssize_t>(sizeof(count))) {
    last = count;
    if (++heard == acks) kill(child, SIGKILL);
  }
  close(ends[0]);
  int status = 0;
  CHECK_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  return last;
}

TEST_F(RocksDbJournalTest, AKillLosesNothingThatWasAcknowledged) {
  fs::create_directories(root_ + "/run");
  size_t before = 0;
  for (uint32_t life = 0; life < 5; ++life) {
    const uint32_t acknowledged = append_and_kill(root_ + "/run", 20 + life * 37);
    ASSERT_GT(acknowledged, before);
    ASSERT_OK_AND_ASSIGN(const auto records, read());
    EXPECT_GE(records.size(), acknowledged);
    EXPECT_LE(records.size(), acknowledged + 1) << "one may have been on its way";
    expect_records(records);
    before = records.size();
  }
}

}  // namespace
}  // namespace perdure::runtime::journal_rocksdb
