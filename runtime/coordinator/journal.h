#pragma once
// Seam: the coordinator's journal. What is appended is durable before append() returns; a decision
// acts only after that. Real: RocksDB; in simulation: memory that outlives the process.
//
// Threads: the component's. Blocks for a disk sync (a millisecond).

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace perdure::runtime::coordinator {

enum class RecordKind : uint8_t {
  kJob = 1,       // JobRecord, the first one
  kLife = 2,      // a coordinator process begins: u64 life
  kNode = 3,      // node, incarnation
  kDecided = 4,   // recovery::EpochPlan
  kActive = 5,    // epoch
  kProgress = 6,  // committed step, now and then: what a restart may not fall behind
  kEnded = 7,     // code, text
};

struct JournalRecord {
  RecordKind kind{};
  std::vector<std::byte> payload;
};

class Journal {
 public:
  virtual ~Journal() = default;
  // All records so far, oldest first. kDataLoss: a record does not decode.
  virtual base::Result<std::vector<JournalRecord>> read_all() = 0;
  virtual base::Status append(const JournalRecord& record) = 0;
};

}  // namespace perdure::runtime::coordinator
