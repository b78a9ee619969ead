#pragma once
// The values of an epoch change (DESIGN section 6): what a worker says it holds, what was decided.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "parallel/layout.h"
#include "parallel/transfer_plan.h"

namespace perdure::recovery {

// The scalars that a step moves together with the tensors. Equal on all holders of one step.
struct CommittedState {
  base::Step step;
  uint64_t samples_consumed = 0;  // the data cursor
  uint64_t applied_steps = 0;     // fewer than `step` when steps were skipped
  uint8_t calibrated = 0;         // exponents are valid
  uint32_t skipped_in_a_row = 0;  // of the detector for gradients that are not finite
  friend bool operator==(const CommittedState&, const CommittedState&) = default;
};

struct TensorDigest {
  base::TensorId tensor;
  uint64_t digest = 0;  // of parameters, moments, exponents, tracked maxima
  friend bool operator==(const TensorDigest&, const TensorDigest&) = default;
};

// Which vote made (or would make) a step: the same step may be tried in several epochs and
// attempts.
struct VoteId {
  base::Epoch epoch;     // 0: none
  uint32_t attempt = 0;  // from 1
  friend bool operator==(const VoteId&, const VoteId&) = default;
};

// Where older state may still be, nearest first.
enum class StateTier : uint8_t {
  kMemory,   // a snapshot in the memory of the worker's node
  kPeer,     // a copy of another node's snapshot, or parity
  kDisk,     // a checkpoint on a disk of the node
  kDurable,  // a checkpoint in a directory that all nodes see
};
std::string_view to_string(StateTier tier);

// A state that a worker can bring back without the help of others.
struct StateOffer {
  StateTier tier = StateTier::kMemory;
  CommittedState committed;
  std::vector<TensorDigest> tensors;  // ascending by tensor
};

// What a worker holds, told after a fence. Without state (a fresh process) tensors is empty and
// has_state 0.
struct StateReport {
  uint8_t has_state = 0;
  CommittedState committed;
  VoteId vote;     // whose result made committed.step; none when the state came otherwise
  VoteId pending;  // step committed.step + 1 is reduced completely and lacks only this vote
  std::vector<TensorDigest> tensors;  // ascending by tensor
  std::vector<StateOffer> offers;     // only when the fence asks for them
};

// The result of a vote, as it lies in runtime/engine/vote.h.
struct VoteValue {
  base::Step step;  // the step that it commits
  VoteId id;
  std::vector<uint64_t> words;
};

struct PlanMember {
  base::WorkerId worker;
  base::Incarnation incarnation;  // of the worker's process
  base::NodeId node;
  friend bool operator==(const PlanMember&, const PlanMember&) = default;
};

enum class StateSource : uint8_t {
  kSeed,       // step 0: every tensor is made from the job's seed
  kSurvivors,  // every tensor is held by a member, or moved from one
};

struct EpochPlan {
  base::Epoch epoch;
  StateSource source = StateSource::kSeed;
  CommittedState resume;
  parallel::Layout layout;
  std::vector<PlanMember> members;          // by rank
  std::vector<parallel::TensorMove> moves;  // ranks of `layout`
};

}  // namespace perdure::recovery
