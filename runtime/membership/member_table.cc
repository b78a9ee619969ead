#include "runtime/membership/member_table.h"

#include <algorithm>

namespace perdure::runtime::membership {
namespace {

using base::Incarnation;
using base::Nanos;
using base::NodeId;

// A join takes no longer than this on its way.
constexpr Nanos kLateMax = std::chrono::seconds(60);

std::string process(NodeId node, Incarnation incarnation) {
  return "node " + std::to_string(node.value()) + ", process " +
         std::to_string(incarnation.value());
}

}  // namespace

MemberTable::MemberTable(const LeaseOptions& options) : options_(options) {
  CHECK_GT(options.lease.count(), 0);
  CHECK_GT(options.tick_max.count(), 0);
}

void MemberTable::restore(NodeId node, Incarnation incarnation, uint64_t born) {
  NodeInfo& info = nodes_[node];
  if (incarnation < info.incarnation) return;
  info.incarnation = incarnation;
  info.born = born;
}

base::Result<Incarnation> MemberTable::join(const Joiner& joiner, Nanos now) {
  const auto found = nodes_.find(joiner.node);
  const NodeInfo known = found == nodes_.end() ? NodeInfo{} : found->second;
  const bool knows_itself = joiner.incarnation != Incarnation(0);
  const bool is_same = knows_itself ? joiner.incarnation >= known.incarnation
                                    : joiner.born != 0 && joiner.born == known.born;
  // A late join of a process that is gone must not take the place of the one that followed it; a
  // clock that was set back must not keep the node out for ever.
  const bool may_be_late = known.state == NodeState::kAlive || now - known.heard_last < kLateMax;
  const bool is_old =
      knows_itself ? !is_same : joiner.born != 0 && joiner.born < known.born && may_be_late;
  if (is_old) {
    return base::aborted(process(joiner.node, joiner.incarnation) +
                         " has been replaced by process " +
                         std::to_string(known.incarnation.value()));
  }
  if (alive_count() == 0) ticked_last_ = now;  // nobody needed a tick before
  NodeInfo& info = nodes_[joiner.node];
  info.incarnation = !is_same       ? known.incarnation.next()
                     : knows_itself ? joiner.incarnation
                                    : known.incarnation;
  if (joiner.born != 0) info.born = joiner.born;
  info.state = NodeState::kAlive;
  info.lease_end = base::saturating_add(now, options_.lease);
  info.heard_last = now;
  return info.incarnation;
}

base::Status MemberTable::beat(NodeId node, Incarnation incarnation, Nanos now) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) {
    return base::aborted(process(node, incarnation) + " has not joined");
  }
  NodeInfo& info = found->second;
  if (info.incarnation != incarnation) {
    return base::aborted(process(node, incarnation) + " is not the one that joined, process " +
                         std::to_string(info.incarnation.value()));
  }
  if (info.state != NodeState::kAlive) {
    return base::aborted(process(node, incarnation) + " has lost its lease and must join again");
  }
  info.heard_last = std::max(info.heard_last, now);
  info.lease_end = std::max(info.lease_end, base::saturating_add(now, options_.lease));
  return base::Status::ok();
}

bool MemberTable::lose(NodeId node, Incarnation incarnation) {
  if (!is_alive(node, incarnation)) return false;
  nodes_[node].state = NodeState::kLost;
  return true;
}

std::vector<NodeLoss> MemberTable::tick(Nanos now) {
  // What came in while we were stopped is still unread: nobody is judged by it.
  const Nanos gap = ticked_last_ < Nanos(0) ? Nanos(0) : now - ticked_last_;
  const Nanos given_back = gap > options_.tick_max ? gap : Nanos(0);
  ticked_last_ = now;
  std::vector<NodeLoss> losses;
  for (auto& [node, info] : nodes_) {
    if (info.state != NodeState::kAlive) continue;
    if (given_back > Nanos(0)) {
      const Nanos full = base::saturating_add(now, options_.lease);
      info.lease_end = std::min(base::saturating_add(info.lease_end, given_back), full);
    }
    if (now < info.lease_end) continue;
    info.state = NodeState::kLost;
    const int64_t silent_ms = (now - info.heard_last).count() / 1'000'000;
    losses.push_back({.node = node,
                      .incarnation = info.incarnation,
                      .why = "no beat for " + std::to_string(silent_ms) + " ms"});
  }
  return losses;
}

bool MemberTable::is_alive(NodeId node, Incarnation incarnation) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.state == NodeState::kAlive &&
         found->second.incarnation == incarnation;
}

size_t MemberTable::alive_count() const {
  return static_cast<size_t>(std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) {
    return entry.second.state == NodeState::kAlive;
  }));
}

Nanos MemberTable::next_deadline() const {
  Nanos first = base::kNoDeadline;
  for (const auto& [node, info] : nodes_) {
    if (info.state == NodeState::kAlive) first = std::min(first, info.lease_end);
  }
  if (first == base::kNoDeadline) return first;
  // Well before tick_max, or a timer that is a little late would look as if we had been stopped.
  return std::min(first, base::saturating_add(ticked_last_, options_.tick_max / 2));
}

}  // namespace perdure::runtime::membership
