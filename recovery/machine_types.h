#pragma once
// What EpochMachine is told and what it orders. Values only.

#include <string>
#include <variant>
#include <vector>

#include "base/event_log.h"
#include "base/ids.h"
#include "base/status.h"
#include "recovery/epoch_types.h"
#include "recovery/gate.h"

namespace perdure::recovery {

// Who says it: a worker's process, and the epoch that it speaks of. What is not of the process that
// is known, or of another epoch, is stale and has no effect.
struct Speaker {
  base::WorkerId worker;
  base::Incarnation incarnation;
  base::Epoch epoch;
};

enum class MemberDoes : uint8_t { kNothing, kLoaded, kRunning, kFinished };

// -- events

struct MemberUp {  // a worker's process is there (or still there, after the coordinator was not)
  PlanMember member;
  base::Epoch epoch;  // the newest that it has heard of
  MemberDoes does = MemberDoes::kNothing;
};
struct MemberDown {
  base::WorkerId worker;
  base::Incarnation incarnation;
  std::string how;
  // Its process has ended. Else it is only out of reach, and may come back with what it holds.
  bool has_ended = true;
};
struct StateTold {
  Speaker from;
  StateReport state;
};
struct VoteTold {
  Speaker from;
  VoteValue vote;
};
struct Prepared {
  Speaker from;
  std::vector<std::byte> address;
};
struct Loaded {
  Speaker from;
  LoadedReport report;
};
struct Stopped {  // its engine left the steps by itself; ok: a hold was agreed on
  Speaker from;
  base::Status why;
};
struct StepSeen {
  Speaker from;
  base::Step step;  // committed
  base::Epoch in;   // the epoch that committed it
};
struct MemberFinished {
  Speaker from;
  base::Step step;
  uint64_t state_digest = 0;
  uint64_t params_digest = 0;
};
struct StopAsked {  // from outside
  base::Status why;
};
struct Tick {};  // only time has passed

using MachineEvent = std::variant<MemberUp, MemberDown, StateTold, VoteTold, Prepared, Loaded,
                                  Stopped, StepSeen, MemberFinished, StopAsked, Tick>;

// -- actions, to be carried out in their order

enum class Phase : uint8_t {
  kGathering,   // not enough workers yet
  kRejoining,   // after a restart of the coordinator: who is still there?
  kCollecting,  // fenced; all tell their state
  kResolving,   // some are given the vote that they lack
  kRestoring,   // some bring back what nobody holds live
  kWaiting,     // state is missing; somebody may come back with it
  kPreparing,
  kLoading,
  kActive,
  kHolding,  // active, and about to stop at a step's border for a planned change
  kOver,
};
std::string_view to_string(Phase phase);

// The names are those of DESIGN section 6, and of the fault points `coordinator.<name>`.
struct EnterPhase {
  // fence, collect, resolve, restore, decide, prepare, transfer, gate, go, hold
  std::string_view name;
  base::Epoch epoch;
};

struct OrderFence {
  std::string why;
  bool with_offers = false;  // what else could be brought back is to be told, too
};
struct OrderRestore {
  CommittedState target;              // state of other steps is dropped
  std::vector<TensorDigest> tensors;  // to be brought back, from the nearest good source
};
struct OrderVote {};
struct OrderApply {
  VoteValue vote;
};
struct OrderPrepare {
  EpochPlan plan;
};
struct OrderLoad {
  std::vector<std::vector<std::byte>> addresses;
};
struct OrderGo {};
struct OrderHold {};
struct OrderTellAgain {};  // what was reported may not have been heard

struct Send {
  std::vector<PlanMember> to;
  base::Epoch epoch;
  std::variant<OrderFence, OrderVote, OrderApply, OrderRestore, OrderPrepare, OrderLoad, OrderGo,
               OrderHold, OrderTellAgain>
      order;
};

// Durable before anything after it in the list is done.
struct RecordDecided {
  EpochPlan plan;
};
struct RecordActive {
  base::Epoch epoch;
};

struct EndMember {  // kill its process; a MemberDown follows, and changes nothing any more
  PlanMember member;
  std::string why;
};
struct Explain {
  base::Event event;
};
struct EndJob {  // ok: all have finished
  base::Status status;
};

using MachineAction =
    std::variant<EnterPhase, Send, RecordDecided, RecordActive, EndMember, Explain, EndJob>;

}  // namespace perdure::recovery
