#include "runtime/journal_rocksdb/rocksdb_journal.h"

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/table.h>

#include <utility>
#include <vector>

#include "base/posix_files.h"
#include "runtime/journal_rocksdb/record_format.h"

namespace perdure::runtime::journal_rocksdb {
namespace {

using base::Result;
using base::Status;
using coordinator::Journal;
using coordinator::JournalRecord;

Status to_status(const rocksdb::Status& status, const std::string& what) {
  const std::string text = what + ": " + status.ToString();
  if (status.IsCorruption()) return base::data_loss(text);
  if (status.IsNoSpace()) return base::resource_exhausted(text);
  if (status.IsIOError() || status.IsBusy()) return base::unavailable(text);
  return base::internal(text);
}

// A journal is kilobytes, written a few times a minute: little memory, one background job at a
// time, no statistics, a log of errors only.
rocksdb::Options small_options() {
  constexpr size_t kBufferBytes = 1 << 20;
  rocksdb::Options options;
  options.create_if_missing = true;
  options.paranoid_checks = true;
  // A record that was cut by a crash at the end of the log was never acknowledged; damage anywhere
  // else is an error.
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kTolerateCorruptedTailRecords;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = kBufferBytes;
  options.arena_block_size = kBufferBytes / 16;
  options.max_write_buffer_number = 2;
  options.max_background_jobs = 1;
  options.max_file_opening_threads = 1;
  options.max_open_files = 64;
  options.table_cache_numshardbits = 0;
  options.max_manifest_file_size = kBufferBytes;
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  options.skip_stats_update_on_db_open = true;
  options.info_log_level = rocksdb::InfoLogLevel::ERROR_LEVEL;
  options.keep_log_file_num = 1;
  options.max_log_file_size = kBufferBytes;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = rocksdb::NewLRUCache(kBufferBytes, 0);
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return options;
}

class RocksDbJournal final : public Journal {
 public:
  RocksDbJournal(std::unique_ptr<rocksdb::DB> db, std::string folder)
      : db_(std::move(db)), folder_(std::move(folder)) {}

  Result<std::vector<JournalRecord>> read_all() override {
    rocksdb::ReadOptions options;
    options.verify_checksums = true;
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(options));
    std::vector<JournalRecord> records;
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
      ASSIGN_OR_RETURN(const uint64_t number, decode_key(it->key().ToStringView()));
      if (number != records.size() + 1) {
        return base::data_loss("journal " + folder_ + ": record " +
                               std::to_string(records.size() + 1) + " is missing");
      }
      ASSIGN_OR_RETURN(JournalRecord record, decode_record(number, it->value().ToStringView()));
      records.push_back(std::move(record));
    }
    if (!it->status().ok()) return to_status(it->status(), "read journal " + folder_);
    return records;
  }

  // Finds the last record.
  Status begin() {
    const std::unique_ptr<rocksdb::Iterator> it(db_->NewIterator(rocksdb::ReadOptions()));
    it->SeekToLast();
    if (!it->status().ok()) return to_status(it->status(), "read journal " + folder_);
    if (!it->Valid()) return Status::ok();
    ASSIGN_OR_RETURN(number_last_, decode_key(it->key().ToStringView()));
    return Status::ok();
  }

  Status append(const JournalRecord& record) override {
    rocksdb::WriteOptions options;
    options.sync = true;
    const uint64_t number = number_last_ + 1;
    const rocksdb::Status status =
        db_->Put(options, encode_key(number), encode_record(number, record));
    // After an error RocksDB takes no more writes, so the number cannot be given twice.
    if (!status.ok()) return to_status(status, "append to journal " + folder_);
    number_last_ = number;
    return Status::ok();
  }

 private:
  const std::unique_ptr<rocksdb::DB> db_;
  const std::string folder_;
  uint64_t number_last_ = 0;
};

}  // namespace

Result<std::unique_ptr<Journal>> open_rocksdb_journal(const std::string& folder) {
  const Status made = base::PosixFiles().make_dirs(folder);
  if (!made.is_ok()) return base::failed_precondition("journal " + folder + ": " + made.message());
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(small_options(), folder, &db);
  if (status.IsIOError()) {
    return base::failed_precondition("journal " + folder +
                                     " cannot be opened; has another process it open? " +
                                     status.ToString());
  }
  if (!status.ok()) return to_status(status, "open journal " + folder);
  auto journal = std::make_unique<RocksDbJournal>(std::unique_ptr<rocksdb::DB>(db), folder);
  RETURN_IF_ERROR(journal->begin());
  return std::unique_ptr<Journal>(std::move(journal));
}

}  // namespace perdure::runtime::journal_rocksdb
