#pragma once
// MemberTable: which nodes are there, as their leases say. Pure: `now` in, changes out. The
// coordinator owns one.
//
//   unknown ── join ──► alive ── lease over, connection lost, leave ──► lost
//                         ▲                                              │
//                         └────────── join (same or a newer process) ────┘
//
// A node's process has an incarnation; a join without one is a new process and gets the next number
// (higher than any that was ever given for that node, also before a restart of the coordinator: see
// restore()). A join or message of an older incarnation than the newest of its node is refused:
// that process has been replaced.
//
// Weak point: a coordinator that was itself stopped would find all leases over at once. tick()
// notices that it was not called for a while and gives every lease that time back.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/units.h"

namespace perdure::runtime::membership {

struct LeaseOptions {
  base::Nanos lease = std::chrono::milliseconds(1000);
  base::Nanos beat = std::chrono::milliseconds(250);      // what agents are told
  base::Nanos tick_max = std::chrono::milliseconds(500);  // a later tick means that we were stopped
};

enum class NodeState : uint8_t { kAlive, kLost };

struct NodeInfo {
  NodeState state = NodeState::kLost;
  base::Incarnation incarnation;
  uint64_t born = 0;  // of the process with that incarnation (Joiner::born); 0: not known
  base::Nanos lease_end{0};
  base::Nanos heard_last{0};
};

// A process that wants to be its node.
struct Joiner {
  base::NodeId node;
  base::Incarnation incarnation;  // 0: it has none yet, as far as it knows
  // Rises with every start of a process on that node. The answer to a join may be lost, and a join
  // may arrive late: this tells the same process from a new one, and an old one from both. 0: not
  // known, taken for a new one.
  uint64_t born = 0;
};

// A node that was alive and is lost now.
struct NodeLoss {
  base::NodeId node;
  base::Incarnation incarnation;
  std::string why;  // "no beat for 1012 ms"
};

class MemberTable {
 public:
  explicit MemberTable(const LeaseOptions& options);

  // From the journal: the newest incarnation that was given to this node. It is lost until it
  // joins.
  void restore(base::NodeId node, base::Incarnation incarnation, uint64_t born = 0);

  // The node's incarnation from now on. kAborted: it has been replaced by a newer process.
  base::Result<base::Incarnation> join(const Joiner& joiner, base::Nanos now);
  // kAborted: replaced, or not alive (its lease is over: it must join again). Renews the lease.
  base::Status beat(base::NodeId node, base::Incarnation incarnation, base::Nanos now);
  // Marks it lost at once (connection lost, a leave); false when it was not alive with that
  // incarnation.
  bool lose(base::NodeId node, base::Incarnation incarnation);
  // Nodes whose lease is over, ascending; they are lost from now on.
  std::vector<NodeLoss> tick(base::Nanos now);

  bool is_alive(base::NodeId node, base::Incarnation incarnation) const;
  const std::map<base::NodeId, NodeInfo>& nodes() const { return nodes_; }
  size_t alive_count() const;
  // When tick() should be called at the latest; kNoDeadline when nobody is alive.
  base::Nanos next_deadline() const;

 private:
  const LeaseOptions options_;
  std::map<base::NodeId, NodeInfo> nodes_;
  base::Nanos ticked_last_{-1};
};

}  // namespace perdure::runtime::membership
