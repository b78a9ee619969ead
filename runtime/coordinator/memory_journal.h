#pragma once
// MemoryJournal: the records live in a store that somebody else owns (the simulated world), so that
// they outlive the coordinator's process.

#include <utility>
#include <vector>

#include "runtime/coordinator/journal.h"

namespace perdure::runtime::coordinator {

class MemoryJournal final : public Journal {
 public:
  explicit MemoryJournal(std::vector<JournalRecord>& store) : store_(store) {}
  base::Result<std::vector<JournalRecord>> read_all() override { return store_; }
  base::Status append(const JournalRecord& record) override {
    store_.push_back(record);
    return base::Status::ok();
  }

 private:
  std::vector<JournalRecord>& store_;
};

}  // namespace perdure::runtime::coordinator
