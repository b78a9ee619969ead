#pragma once
// ThreadedEngine: the real EngineDriver. The component's thread asks, one engine thread works:
//
//   component thread                     engine thread (EpochEngine)
//   prepare, load, apply_vote ─ posted ─► one after the other
//   go ──────────────────────── posted ─► the training loop
//   fence: aborts the fabric, raises the flag: whatever runs ends soon;
//          then ──────────────── posted ─► leave the epoch, say what is held
//   results, reports ◄────────── posted ─
//
// How soon: a wait on the fabric ends at once; otherwise when the instruction of the schedule, the
// making of a communicator (some ms) or the fetching of memory (1 s per GB at worst) is done.
//
// Destroy it before its io_context; that blocks until the engine thread has ended.

#include <memory>
#include <optional>

#include "runtime/worker/engine_driver.h"
#include "runtime/worker/engine_thread.h"
#include "runtime/worker/epoch_engine.h"
#include "runtime/worker/report_ring.h"

namespace perdure::runtime::worker {

class ThreadedEngine final : public EngineDriver {
 public:
  ThreadedEngine(const EngineServices& services, base::Executor executor);
  ~ThreadedEngine() override;

  void listen(EngineListener& listener) override { listener_ = &listener; }
  base::Task<base::Result<std::string>> open(protocol::JobText job) override;
  base::Task<recovery::StateReport> fence(base::Epoch epoch) override;
  base::Result<recovery::VoteValue> vote() const override;
  base::Task<base::Status> apply_vote(recovery::VoteValue vote) override;
  // As of when the engine was quiet last.
  recovery::StateReport state() const override { return quiet_.report; }
  base::Task<std::vector<recovery::StateOffer>> offers() override;
  base::Task<Restored> restore(recovery::CommittedState target,
                               std::vector<recovery::TensorDigest> tensors) override;
  base::Task<base::Result<protocol::Prepared>> prepare(recovery::EpochPlan plan,
                                                       base::Rank rank) override;
  base::Task<base::Result<protocol::Loaded>> load(
      std::vector<protocol::RankAddress> addresses) override;
  base::Status go() override;
  void hold() override;
  void abort(const base::Status& why) override;
  std::vector<protocol::StepReport> reports(base::Step after) const override;
  base::Task<void> close() override;

 private:
  enum class Phase : uint8_t { kIdle, kLoaded, kRunning };
  class Reporter;
  // Shared by the driver and what the engine thread has posted, which may run after it has gone.
  struct Link {
    ThreadedEngine* driver;  // null when gone; the component's thread only
  };

  template <typename T>
  base::Task<T> call(base::UniqueFunction<T()> work);
  void tell(base::UniqueFunction<void(ThreadedEngine&)> what);  // the engine thread
  void train();                                                 // the engine thread
  void stopped(base::Status why, QuietState quiet);
  void add_report(const protocol::StepReport& report);

  const base::Executor executor_;
  const std::shared_ptr<Link> link_;
  EngineListener* listener_ = nullptr;
  EpochEngine core_;
  QuietState quiet_;
  std::optional<ReportRing> reports_;
  Phase phase_ = Phase::kIdle;
  uint64_t leaves_ = 0;  // fences and aborts so far: a load that one of them met has failed
  bool is_closed_ = false;
  EngineThread thread_;  // last: the first to go
};

}  // namespace perdure::runtime::worker
