#pragma once
// Seam: where a worker keeps its committed state beside itself, and what it can bring back from
// there and from everywhere else that it reaches. Real: SlabKeeper, in the memory of its node's
// agent; NoSnapshots keeps nothing.
//
// Threads: the engine thread.

#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "recovery/epoch_types.h"
#include "runtime/engine/tensor_store.h"
#include "runtime/job/job_config.h"

namespace perdure::runtime::worker {

inline constexpr int kSnapshotCopies = 2;  // one is always complete

class SnapshotKeeper {
 public:
  virtual ~SnapshotKeeper() = default;

  // What the job's file says of it; before anything else.
  virtual void follow(const job::CheckpointConfig& config) = 0;

  // A rank begins to run with this layout, or a step was committed. May do nothing: what a snapshot
  // costs is its own decision, and a failure is its own matter; it must not stop the training.
  enum class Why : uint8_t { kNewLayout, kStep };
  virtual void save(engine::TensorStore& store, Why why) = 0;

  // What can be brought back: nearest and newest first.
  virtual std::vector<recovery::StateOffer> offers() = 0;

  // Fills the wire part of `to`, whose id says which tensor, from the nearest source of that state.
  // kDataLoss: what is there is not what was kept; kNotFound: it is not there (any more).
  virtual base::Status read(const recovery::CommittedState& state, engine::StoredTensor& to) = 0;
  // The source that read() used for this tensor has proved bad: it is not offered again.
  virtual void refuse(const recovery::CommittedState& state, base::TensorId tensor) = 0;

  // Memory for the reports of this worker's steps, which a new process of it finds again; empty:
  // none, they are the process's own.
  virtual base::Result<base::MutableByteSpan> report_memory(size_t bytes) = 0;

  // What it has cost so far.
  struct Cost {
    uint64_t taken = 0;
    uint64_t skipped = 0;
    uint64_t bytes = 0;  // of the newest
    double seconds = 0.0;
  };
  virtual Cost cost() const = 0;
};

class NoSnapshots final : public SnapshotKeeper {
 public:
  void follow(const job::CheckpointConfig&) override {}
  void save(engine::TensorStore&, Why) override {}
  std::vector<recovery::StateOffer> offers() override { return {}; }
  base::Status read(const recovery::CommittedState&, engine::StoredTensor&) override {
    return base::not_found("no snapshots are kept");
  }
  void refuse(const recovery::CommittedState&, base::TensorId) override {}
  base::Result<base::MutableByteSpan> report_memory(size_t) override {
    return base::MutableByteSpan();
  }
  Cost cost() const override { return {}; }
};

}  // namespace perdure::runtime::worker
