#pragma once
// The coordinator's journal on disk: RocksDB with one record under each rising key. Format:
// docs/formats/journal.md. Every append is a synced write.

#include <memory>
#include <string>

#include "runtime/coordinator/journal.h"

namespace perdure::runtime::journal_rocksdb {

// Makes the folder when it is not there. kFailedPrecondition: it cannot be made, or another process
// has it open. kDataLoss: what is there is damaged.
base::Result<std::unique_ptr<coordinator::Journal>> open_rocksdb_journal(const std::string& folder);

}  // namespace perdure::runtime::journal_rocksdb
