#pragma once
// EpochEngine: what the engine thread does. Owns device, data, committed state, and the fabric and
// trainer of the present epoch.
//
//   open ─► (leave ─► prepare ─► load ─► run)*
//
// prepare ends the old trainer, so a pending step is gone then; the tensors stay in the RankMemory.
//
// Threads: the engine thread, but for abort() and request_hold(). All calls block.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "runtime/protocol/epoch_messages.h"
#include "runtime/protocol/node_messages.h"
#include "runtime/worker/fabric_maker.h"
#include "runtime/worker/snapshot_keeper.h"
#include "runtime/worker/trainer.h"

namespace perdure::runtime::worker {

// The real implementations, picked by the main. All outlive the engine.
struct EngineServices {
  base::Clock& clock;  // telling the time is enough
  FabricMaker& fabrics;
  SnapshotKeeper& snapshots;
  std::function<base::Result<std::unique_ptr<kernels::Device>>(std::string_view,
                                                               const kernels::DeviceOptions&)>
      make_device;
};

// The fabric of the present epoch, which any thread may abort.
class FabricSlot {
 public:
  // The reason of an abort that came before; the fabric is then closed.
  base::Status install(std::unique_ptr<collective::MeshFabric> fabric);
  collective::MeshFabric* get();  // none: null
  void abort(const base::Status& why);
  // Closes the fabric; an abort is forgotten.
  void clear();

 private:
  base::Mutex mutex_;
  std::unique_ptr<collective::MeshFabric> fabric_ GUARDED_BY(mutex_);
  base::Status aborted_ GUARDED_BY(mutex_);
};

// What is held when the engine is quiet.
struct QuietState {
  recovery::StateReport report;
  recovery::VoteValue vote;  // id.epoch 0: none
};

class EpochEngine {
 public:
  explicit EpochEngine(const EngineServices& services) : services_(services) {}
  ~EpochEngine();

  // The device's description. Errors: of the job, the data, the device.
  base::Result<std::string> open(const protocol::JobText& text);
  // Ends the epoch; the trainer stays, for its pending step.
  QuietState leave();
  QuietState quiet_state() const;
  base::Status apply_vote(const recovery::VoteValue& vote, TrainListener& listener);
  base::Result<base::MutableByteSpan> report_memory(size_t bytes) {
    return services_.snapshots.report_memory(bytes);
  }
  std::vector<recovery::StateOffer> offers() { return services_.snapshots.offers(); }
  // Gives what was bad.
  std::vector<std::string> restore(const recovery::CommittedState& target,
                                   const std::vector<recovery::TensorDigest>& tensors);

  // kInvalidArgument: the plan or its schedule is not legal; kAborted: not newer than the last.
  base::Result<protocol::Prepared> prepare(const recovery::EpochPlan& plan, base::Rank rank);
  // Errors: of the fabric, of the transfer; kFailedPrecondition: a tensor is missing afterwards.
  base::Result<protocol::Loaded> load(const std::vector<protocol::RankAddress>& addresses);
  base::Result<TrainEnd> run(TrainListener& listener);
  const protocol::Finished& finished() const { return trainer_->finished(); }
  base::Step committed() const { return memory_->tensors.committed().step; }

  // Any thread: whatever goes on ends soon.
  void abort(const base::Status& why);
  // Any thread, while a trainer is loaded.
  void request_hold() { trainer_->request_hold(); }

 private:
  base::Result<TrainerOptions> check(const recovery::EpochPlan& plan, base::Rank rank) const;
  base::Status connect(const std::vector<protocol::RankAddress>& addresses);
  base::Result<uint64_t> fetch_state();
  FabricRequest fabric_request() const;

  const EngineServices services_;
  job::JobConfig job_;
  job::JobPlan job_plan_;
  std::unique_ptr<kernels::Device> device_;
  std::optional<data::DataSource> data_;
  std::unique_ptr<engine::RankMemory> memory_;
  FabricSlot fabric_;
  std::atomic<bool> leave_{false};
  recovery::EpochPlan plan_;  // of the present epoch
  std::optional<TrainerOptions> prepared_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace perdure::runtime::worker
