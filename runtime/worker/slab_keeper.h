#pragma once
// SlabKeeper: snapshots in the memory of the node's agent (checkpoint/slab.h), which outlives this
// process. It takes one after each checkpoint.memory_every steps, and reads those of all workers of
// its node.
//
//   engine thread ── copy + hash ──► slot 0 or 1 of its own slab     what is newer stays
//                 ◄── verified copy ── any slot of any worker of the node
//
// Threads: the engine thread; report_memory() once, before.

#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/posix_shared_memory.h"
#include "checkpoint/slab.h"
#include "runtime/worker/snapshot_keeper.h"

namespace perdure::runtime::worker {

struct SlabKeeperOptions {
  // Of this worker: the slots, at least two. Of the other workers of the node: also theirs.
  std::vector<std::string> own_slots;
  std::vector<std::string> other_slots;
  std::string reports;  // ""; else memory for the reports of its steps
};

class SlabKeeper final : public SnapshotKeeper {
 public:
  // kNotFound: the agent is gone.
  static base::Result<std::unique_ptr<SlabKeeper>> open(const SlabKeeperOptions& options,
                                                        base::Clock& clock);

  void follow(const job::CheckpointConfig& config) override { config_ = config; }
  void save(engine::TensorStore& store, Why why) override;
  std::vector<recovery::StateOffer> offers() override;
  base::Status read(const recovery::CommittedState& state, engine::StoredTensor& to) override;
  void refuse(const recovery::CommittedState& state, base::TensorId tensor) override;
  base::Result<base::MutableByteSpan> report_memory(size_t bytes) override;
  Cost cost() const override { return cost_; }

 private:
  struct Slot {
    std::string path;
    base::SharedMemory memory;
    bool is_own = false;
    checkpoint::SlotRecord record;  // of its generation; 0: none was read
  };
  // A tensor of a snapshot that proved bad: slot, generation, tensor.
  using Refused = std::tuple<size_t, uint64_t, base::TensorId>;

  SlabKeeper(const SlabKeeperOptions& options, base::Clock& clock)
      : options_(options), clock_(clock) {}
  base::Status try_save(engine::TensorStore& store);
  base::Status plan_for(engine::TensorStore& store);
  size_t slot_to_overwrite(base::Step step);
  // Decoded once for each snapshot. Valid until the slot is looked at again.
  base::Result<const checkpoint::SlotRecord*> record_of(Slot& slot);
  base::Result<size_t> find(const recovery::CommittedState& state, base::TensorId tensor,
                            checkpoint::SlotRecord& record, checkpoint::SlotTensor& found);

  const SlabKeeperOptions options_;
  base::Clock& clock_;
  job::CheckpointConfig config_;
  std::vector<Slot> slots_;  // own ones first
  base::SharedMemory reports_;
  checkpoint::SlotPlan plan_;
  std::vector<base::TensorId> planned_;  // what plan_ is of
  std::vector<Refused> refused_;
  uint64_t generation_ = 0;
  Cost cost_;
  bool has_warned_ = false;
};

}  // namespace perdure::runtime::worker
