#pragma once
// LeaseKeeper: an agent's own view of its lease: may its workers go on? Pure.
//
// Think of a night watch who must hear "all is well" from the gate every second. When the gate is
// silent he looks whether the village still works: as long as it does, nobody can have moved on
// without him, because a step needs the vote of every member of his epoch. Only when both are
// silent he stops his people (fence), keeping all they hold; and only after a long silence he sends
// them home (end), so that no orphan holds a device for ever.
//
//   alive ── no ack for `lease` and no commit for max(lease, 4 steps) ──► fenced ── `end_after` ──►
//   end
//     ▲                                                                     │
//     └────────────────────────────── ack ──────────────────────────────────┘

#include <string>

#include "base/ids.h"
#include "base/units.h"

namespace perdure::runtime::membership {

struct LeaseKeeperOptions {
  base::Nanos lease = std::chrono::milliseconds(1000);
  base::Nanos end_after = std::chrono::minutes(10);  // counted from the last ack
};

enum class LeaseVerdict : uint8_t { kHold, kFence, kEnd };

class LeaseKeeper {
 public:
  LeaseKeeper(const LeaseKeeperOptions& options, base::Nanos now);
  // An ack answers a beat that was sent at `sent`: the lease counts from there.
  void acked(base::Nanos sent);
  void committed(base::Step step, base::Nanos now);  // steps must rise to count
  LeaseVerdict verdict(base::Nanos now) const;
  // When the verdict could change without an ack.
  base::Nanos next_change(base::Nanos now) const;
  std::string explain(
      base::Nanos now) const;  // "no word from the coordinator for 1.2 s, no step for 3.4 s"

 private:
  base::Nanos quiet_max() const;  // without a commit

  const LeaseKeeperOptions options_;
  base::Nanos acked_at_;
  base::Nanos committed_at_;
  base::Nanos step_time_{0};  // of the last two commits
  base::Step step_;
};

}  // namespace perdure::runtime::membership
