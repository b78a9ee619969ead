#pragma once
// Workers as threads of one process, that keep their state while epochs come and go; and a handler
// that strikes one of them at a fault point.

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/fault_point.h"
#include "runtime/collective/local_fabric.h"
#include "tests/runtime/engine/train_harness.h"

namespace perdure::runtime::engine {

// One worker: what it holds, and its part of the newest epoch.
struct Survivor {
  kernels::Device* device = nullptr;  // the process': making one takes longer than a step
  std::unique_ptr<RankMemory> memory;
  std::unique_ptr<collective::Fabric> fabric;
  std::unique_ptr<StepEngine> engine;
  std::vector<StepResult> results;  // of all epochs
  base::Status status;              // of the newest epoch
};

// The rank whose thread this is; set by Survivors.
extern constinit thread_local uint32_t current_rank;

class Survivors {
 public:
  Survivors(const TrainJob& job, uint32_t count);
  ~Survivors();

  // Which workers are the ranks of the next epochs, by rank. At first all, in order.
  void set_members(std::vector<uint32_t> workers) { members_ = std::move(workers); }
  // A new epoch of pipelines x stages over the first members, which hold what they need (at step 0:
  // made from the seed). Each rank runs `before` (a transfer), then steps until `steps` are
  // committed or an error ends it.
  using Before = std::function<base::Status(Survivor&, const EngineOptions&)>;
  void run_epoch(uint32_t pipelines, uint32_t stages, uint32_t steps, const Before& before = {});
  // The commit rule: what one has, the others get. Returns how many had to apply it.
  uint32_t settle();

  Survivor& at(uint32_t worker) { return survivors_[worker]; }
  Survivor& rank(uint32_t rank) { return survivors_[members_[rank]]; }
  void lose(uint32_t worker);  // and put a fresh one in its place
  size_t size() const { return survivors_.size(); }
  base::Epoch epoch() const { return epoch_; }
  const TrainJob& job() const { return job_; }
  // By step, from 0: what the steps of all ranks said of the state before them, and the newest.
  std::map<uint64_t, uint64_t> digests() const;

 private:
  void run_rank(uint32_t r, uint32_t steps, const Before& before);

  TrainJob job_;
  base::Epoch epoch_;
  uint32_t ranks_ = 0;  // of the newest epoch: the first members
  std::vector<uint32_t> members_;
  std::unique_ptr<collective::LocalSwitch> hub_;
  std::vector<Survivor> survivors_;
};

// Strikes at the nth time that `rank` comes by `point`.
class Strike final : public base::FaultHandler {
 public:
  struct When {
    std::string_view point;
    uint32_t rank = 0;
    uint64_t step = 0;  // the rank's own: ranks of one process share base::fault_time
    uint32_t nth = 1;   // time in that step
  };
  Strike(When when, std::function<base::Status(base::MutableByteSpan)> action)
      : when_(when), action_(std::move(action)) {}
  base::Status at_fault_point(std::string_view name, base::MutableByteSpan bytes) override;
  bool has_struck() const { return struck_; }

 private:
  const When when_;
  const std::function<base::Status(base::MutableByteSpan)> action_;
  uint64_t step_ = 0;  // begun since this was made; the struck rank's thread only, as seen_
  uint32_t seen_ = 0;
  std::atomic<bool> struck_{false};
};

}  // namespace perdure::runtime::engine
