#pragma once
// FakeEngine: an EngineDriver whose steps are barriers in virtual time and whose tensors are
// digests. What it computes is a chain: the digest of a tensor after step k is a function of the
// one before and of k, so a step that is left out, done twice or done on old state shows for ever.
//
// Threads: its host's. Dies with its worker's process.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/condition.h"
#include "base/gate.h"
#include "chaos/cluster/data_plane.h"
#include "chaos/cluster/node_memory.h"
#include "parallel/model_spec.h"
#include "runtime/worker/engine_driver.h"

namespace perdure::chaos::cluster {

class FakeJob {
 public:
  parallel::ModelSpec model;
  uint64_t steps = 20;
  uint64_t samples_per_step = 8;
  base::Nanos compute_mean = std::chrono::milliseconds(50);
  base::Nanos leave_mean = std::chrono::milliseconds(2);  // until the engine thread is quiet
  base::Nanos prepare_mean = std::chrono::milliseconds(30);
  base::Nanos move_mean = std::chrono::milliseconds(5);  // of one tensor
  bool snapshots = false;  // one of each step, in the memory of the node
  base::Nanos snapshot_mean = std::chrono::milliseconds(3);

  uint64_t seed_digest(base::TensorId tensor) const;
  static uint64_t next_digest(uint64_t digest, uint64_t step);
  uint64_t digest_after(base::TensorId tensor, uint64_t step) const;
  uint64_t state_digest_after(uint64_t step) const;  // of all tensors

 private:
  mutable std::vector<std::vector<uint64_t>> digests_;  // by step, by tensor; made when asked for
  mutable std::vector<uint64_t> state_digests_;         // by step
};

// What invariants hear. Called inside the host's turn; must not act on the world.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void on_commit(const FakeEngine& engine, base::Step step, recovery::VoteId vote) = 0;
  virtual void on_go(const FakeEngine& engine) = 0;
};

class FakeEngine final : public runtime::worker::EngineDriver {
 public:
  FakeEngine(SimHost& host, base::WorkerId worker, base::Incarnation incarnation,
             const FakeJob& job, DataPlane& plane, NodeMemory& memory, EngineObserver& observer,
             uint64_t seed);
  ~FakeEngine() override;

  void listen(runtime::worker::EngineListener& listener) override { listener_ = &listener; }
  base::Task<base::Result<std::string>> open(runtime::protocol::JobText job) override;
  base::Task<recovery::StateReport> fence(base::Epoch epoch) override;
  base::Result<recovery::VoteValue> vote() const override;
  base::Task<base::Status> apply_vote(recovery::VoteValue vote) override;
  recovery::StateReport state() const override;
  base::Task<std::vector<recovery::StateOffer>> offers() override;
  base::Task<Restored> restore(recovery::CommittedState target,
                               std::vector<recovery::TensorDigest> tensors) override;
  base::Task<base::Result<runtime::protocol::Prepared>> prepare(recovery::EpochPlan plan,
                                                                base::Rank rank) override;
  base::Task<base::Result<runtime::protocol::Loaded>> load(
      std::vector<runtime::protocol::RankAddress> addresses) override;
  base::Status go() override;
  void hold() override { wants_hold_ = true; }
  void abort(const base::Status& why) override;
  std::vector<runtime::protocol::StepReport> reports(base::Step after) const override;
  base::Task<void> close() override;

  // -- by the data plane
  void passed(base::Epoch epoch, const BarrierKey& key, bool wants_hold);
  void peer_lost(base::Epoch epoch, base::Rank rank);

  SimHost& host() const { return host_; }
  base::WorkerId worker() const { return worker_; }
  base::Incarnation incarnation() const { return incarnation_; }
  const DataPlane::Seat& seat() const { return seat_; }
  const recovery::CommittedState& committed() const { return committed_; }
  recovery::VoteId vote_id() const { return vote_; }
  recovery::VoteId pending() const { return pending_; }
  bool has_state() const { return has_state_; }
  const std::map<base::TensorId, uint64_t>& tensors() const { return tensors_; }
  // While it loads, what is not of its new stage is about to be let go.
  bool lets_go(base::TensorId tensor) const {
    return loading_ && !std::binary_search(part_.needed.begin(), part_.needed.end(), tensor);
  }

 private:
  // What of a plan is this rank's; plans of large jobs are too large to keep in every engine.
  struct Part {
    recovery::CommittedState resume;
    recovery::StateSource source = recovery::StateSource::kSeed;
    std::vector<base::TensorId> needed;
    std::vector<parallel::TensorMove> moves;
  };

  base::Task<void> run_steps(uint64_t turn);
  base::Task<void> take_snapshot(uint64_t turn);
  base::Task<base::Status> pass(BarrierKey key, uint64_t turn);
  base::Task<base::Status> fetch(const parallel::TensorMove& move, uint64_t turn);
  base::Task<void> pause(base::Nanos mean);
  void commit(recovery::VoteId vote);
  void stop(const base::Status& why);
  base::Status interrupted() const { return base::aborted("the epoch was left"); }
  void point(std::string_view name);

  SimHost& host_;
  const base::WorkerId worker_;
  const base::Incarnation incarnation_;
  const FakeJob& job_;
  DataPlane& plane_;
  NodeMemory& memory_;
  std::vector<runtime::protocol::StepReport> own_reports_;
  std::vector<runtime::protocol::StepReport>& reports_;
  EngineObserver& observer_;
  base::SeededRandom random_;
  runtime::worker::EngineListener* listener_ = nullptr;
  base::Gate gate_;
  base::Condition changed_;

  // committed
  bool has_state_ = false;
  recovery::CommittedState committed_;
  std::map<base::TensorId, uint64_t> tensors_;
  recovery::VoteId vote_;
  recovery::VoteId pending_;

  // of the epoch
  DataPlane::Seat seat_;
  Part part_;
  std::map<BarrierKey, bool> passed_;  // and whether a hold is wanted
  base::Status lost_;                  // a peer, ok while none
  bool wants_hold_ = false;
  bool loading_ = false;
  bool running_ = false;
  uint64_t turn_ = 0;  // rises when the epoch is left: what began before is void
};

}  // namespace perdure::chaos::cluster
