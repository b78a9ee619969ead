#pragma once
// An EpochMachine and made-up workers: what they hold follows what they are ordered, so a test says
// only what goes wrong. The state of a tensor after a step is a digest of both.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/hash.h"
#include "parallel/layer_cost.h"
#include "recovery/epoch_machine.h"
#include "tests/parallel/plan_fixtures.h"
#include "tests/testing/matchers.h"

namespace perdure::recovery {

inline uint64_t digest_at(base::TensorId tensor, uint64_t step) {
  return base::mix64(tensor.value() * 1'000'003 + step);
}
CommittedState committed_at(uint64_t step);
std::vector<TensorDigest> digests_at(const std::vector<base::TensorId>& tensors, uint64_t step);

// A worker's process.
struct Body {
  PlanMember id;
  StateReport state;  // its offers are told when the fence asks for them only
  bool tells_offers = false;
  std::vector<TensorDigest> bad;  // fails to be brought back
  base::Epoch epoch;              // newest that it was ordered
  std::optional<EpochPlan> plan;  // prepared
  MemberDoes does = MemberDoes::kNothing;
};

// 2 pipelines of 2 stages on workers 0-3, one on each node.
class MachineTest : public ::testing::Test {
 protected:
  MachineTest();

  void begin(const std::optional<MachineMemory>& memory = std::nullopt);
  // Hands it to the machine. Also checks, always: what a message depends on was recorded before it,
  // and no message of an older epoch than the machine's is sent.
  void feed(const MachineEvent& event);
  void pass(base::Nanos time);  // and ticks when that is due

  // A new process of this worker (its old one is then gone), or the same one seen again.
  void up(uint32_t worker);
  void up_again(uint32_t worker);
  void down(uint32_t worker);        // its process is gone
  void lost_sight(uint32_t worker);  // the process lives on, its node is not heard
  void start_four();                 // up to kCollecting

  // The order that the phase has given is answered by this worker, as a good one does.
  void answer(uint32_t worker);
  // By all who were ordered something; `but` do not.
  void answer_all(const std::set<uint32_t>& but = {});
  // Until this phase is reached.
  void run_to(Phase phase);
  void start_job() {
    start_four();
    run_to(Phase::kActive);
  }
  // All members commit this step; the last ones to hear of the vote do not yet.
  void commit(uint64_t step, const std::set<uint32_t>& not_yet = {});
  void finish(uint32_t worker);

  Speaker speaker(uint32_t worker) const {
    const Body& body = bodies_.at(worker);
    return {body.id.worker, body.id.incarnation, body.epoch};
  }
  std::set<uint32_t> plan_workers() const;
  bool in_plan(uint32_t worker) const { return plan_workers().contains(worker); }
  base::Rank rank(uint32_t worker) const;

  // Of everything since the last clear().
  template <typename Order>
  std::set<uint32_t> ordered() const {
    std::set<uint32_t> result;
    for (const MachineAction& action : actions_) {
      const auto* send = std::get_if<Send>(&action);
      if (send == nullptr || !std::holds_alternative<Order>(send->order)) continue;
      for (const PlanMember& member : send->to) result.insert(member.worker.value());
    }
    return result;
  }
  std::set<uint32_t> ended() const;  // EndMember
  std::string why_ended(uint32_t worker) const;
  std::vector<std::string> kinds() const;  // of the explained events
  const base::Event* event(const std::string& kind) const;
  std::string field(const std::string& kind, const std::string& key) const;
  const std::optional<base::Status>& outcome() const { return outcome_; }
  void clear() { actions_.clear(); }
  Phase phase() const { return machine_->phase(); }
  uint64_t epoch() const { return machine_->epoch().value(); }

  MachineOptions options_;
  std::optional<EpochMachine> machine_;
  base::Nanos now_ = std::chrono::seconds(100);
  std::map<uint32_t, Body> bodies_;
  std::vector<MachineAction> actions_;
  std::optional<base::Status> outcome_;
  std::set<base::Epoch> decided_, activated_;
  uint64_t next_incarnation_ = 1;

 private:
  void check_order(const Send& send);
  void follow(const Send& send);
  static void restore_body(Body& body, const OrderRestore& order);
};

}  // namespace perdure::recovery
