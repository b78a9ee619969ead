#pragma once
// RocksDbJournal: records under rising keys (u64, big-endian); values: kind u8, checksum u64,
// payload. Format: docs/formats/journal.md. Every append is a synced write.

#include <memory>
#include <string>

#include "runtime/coordinator/journal.h"

namespace perdure::runtime::coordinator {

// kFailedPrecondition: the folder cannot be made, or another process has it open.
base::Result<std::unique_ptr<Journal>> open_rocksdb_journal(const std::string& folder);

}  // namespace perdure::runtime::coordinator
