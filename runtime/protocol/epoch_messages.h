#pragma once
// Between the coordinator and a worker, through the agent: the phases of an epoch change (DESIGN
// section 6). The order of a run is drawn in message_type.h.

#include <string>
#include <vector>

#include "parallel/layout_fields.h"
#include "recovery/epoch_fields.h"
#include "recovery/epoch_types.h"
#include "runtime/protocol/message_type.h"
#include "runtime/protocol/report_messages.h"

namespace perdure::runtime::protocol {

inline constexpr size_t kReportsTold = 64;

struct Fence {
  static constexpr MessageType kType = MessageType::kFence;
  std::string why;
  base::Step reported{~uint64_t{0}};  // steps after it are told with the state
  uint8_t with_offers = 0;            // 1: what could be brought back is told, too
  template <typename V>
  void visit(V& v) {
    v(why, reported, with_offers);
  }
};

// The reports come with the state that they speak of: whoever made a step may be gone when it is
// asked for later.
struct StateTold {
  static constexpr MessageType kType = MessageType::kStateTold;
  recovery::StateReport state;
  std::vector<StepReport> reports;  // oldest first, at most kReportsTold
  // When the engine had left its steps, by the worker's steady clock: on one machine all processes
  // have the same. For measurements only.
  uint64_t left_ns = 0;
  std::vector<std::string> bad_sources;  // found by the Restore that this answers
  template <typename V>
  void visit(V& v) {
    v(state, reports, left_ns, bad_sources);
  }
};

// State of other steps is dropped, and the tensors are brought back from the nearest source that is
// good. Answered by StateTold; a tensor without a good source is then missing, and not offered.
struct Restore {
  static constexpr MessageType kType = MessageType::kRestore;
  recovery::CommittedState target;
  std::vector<recovery::TensorDigest> tensors;
  template <typename V>
  void visit(V& v) {
    v(target, tensors);
  }
};

struct AskVote {
  static constexpr MessageType kType = MessageType::kAskVote;
  template <typename V>
  void visit(V&) {}
};

struct VoteTold {
  static constexpr MessageType kType = MessageType::kVoteTold;
  recovery::VoteValue vote;
  template <typename V>
  void visit(V& v) {
    v(vote);
  }
};

struct ApplyVote {
  static constexpr MessageType kType = MessageType::kApplyVote;
  recovery::VoteValue vote;
  template <typename V>
  void visit(V& v) {
    v(vote);
  }
};

struct RankedWorker {
  base::WorkerId worker;
  base::Incarnation incarnation;
  base::Rank rank;
  template <typename V>
  void visit(V& v) {
    v(worker, incarnation, rank);
  }
};

struct Prepare {
  static constexpr MessageType kType = MessageType::kPrepare;
  recovery::EpochPlan plan;         // without members: a worker needs its own rank only
  std::vector<RankedWorker> ranks;  // of the workers that this copy is for
  template <typename V>
  void visit(V& v) {
    v(plan, ranks);
  }
};

struct Prepared {
  static constexpr MessageType kType = MessageType::kPrepared;
  std::vector<std::byte> address;
  uint64_t planned_bytes = 0;  // memory that the plan predicted for this worker
  std::string device;          // Device::description()
  template <typename V>
  void visit(V& v) {
    v(address, planned_bytes, device);
  }
};

struct RankAddress {
  base::Rank rank;
  std::vector<std::byte> address;
  template <typename V>
  void visit(V& v) {
    v(rank, address);
  }
};

struct Load {
  static constexpr MessageType kType = MessageType::kLoad;
  // Of all partners (parallel/rank_partners.h) of the workers that this copy is for, ascending.
  std::vector<RankAddress> addresses;
  template <typename V>
  void visit(V& v) {
    v(addresses);
  }
};

struct Loaded {
  static constexpr MessageType kType = MessageType::kLoaded;
  recovery::CommittedState committed;
  std::vector<recovery::TensorDigest> tensors;  // ascending
  uint64_t bytes_received = 0;
  double seconds = 0.0;  // connecting, moving, loading
  template <typename V>
  void visit(V& v) {
    v(committed, tensors, bytes_received, seconds);
  }
};

struct Go {
  static constexpr MessageType kType = MessageType::kGo;
  base::Step reported;  // rank 0 first tells again what it knows of steps after this one
  template <typename V>
  void visit(V& v) {
    v(reported);
  }
};

// Tell again what is known of the steps after `reported`, and the end when it was reached.
struct AskReports {
  static constexpr MessageType kType = MessageType::kAskReports;
  base::Step reported;
  template <typename V>
  void visit(V& v) {
    v(reported);
  }
};

struct Hold {
  static constexpr MessageType kType = MessageType::kHold;
  template <typename V>
  void visit(V&) {}
};

// The engine has left its steps without a Fence. Ok: a hold was agreed on. kUnavailable: a peer is
// lost. Other codes: the job cannot go on like this.
struct Stopped {
  static constexpr MessageType kType = MessageType::kStopped;
  base::Step step;  // committed
  uint32_t code = 0;
  std::string text;
  template <typename V>
  void visit(V& v) {
    v(step, code, text);
  }
};

}  // namespace perdure::runtime::protocol
