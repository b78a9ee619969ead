#include "runtime/membership/lease_keeper.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/check.h"

namespace perdure::runtime::membership {

using base::Nanos;

LeaseKeeper::LeaseKeeper(const LeaseKeeperOptions& options, Nanos now)
    : options_(options), acked_at_(now), committed_at_(now) {
  CHECK_GT(options.lease.count(), 0);
  CHECK_GE(options.end_after.count(), options.lease.count());
}

void LeaseKeeper::acked(Nanos sent) { acked_at_ = std::max(acked_at_, sent); }

void LeaseKeeper::committed(base::Step step, Nanos now) {
  if (step <= step_) return;
  const bool is_first = step_ == base::Step(0);
  if (!is_first) {
    step_time_ = (now - committed_at_) / static_cast<int64_t>(step.value() - step_.value());
  }
  step_ = step;
  committed_at_ = now;
}

Nanos LeaseKeeper::quiet_max() const {
  constexpr int64_t kSteps = 4;
  if (step_time_ > base::kNoDeadline / kSteps) return base::kNoDeadline;
  return std::max(options_.lease, step_time_ * kSteps);
}

LeaseVerdict LeaseKeeper::verdict(Nanos now) const {
  const bool is_quiet = now - acked_at_ >= options_.lease && now - committed_at_ >= quiet_max();
  if (!is_quiet) return LeaseVerdict::kHold;
  return now - acked_at_ >= options_.end_after ? LeaseVerdict::kEnd : LeaseVerdict::kFence;
}

Nanos LeaseKeeper::next_change(Nanos now) const {
  switch (verdict(now)) {
    case LeaseVerdict::kHold:
      return std::max(base::saturating_add(acked_at_, options_.lease),
                      base::saturating_add(committed_at_, quiet_max()));
    case LeaseVerdict::kFence:
      return base::saturating_add(acked_at_, options_.end_after);
    case LeaseVerdict::kEnd:
      break;
  }
  return base::kNoDeadline;
}

std::string LeaseKeeper::explain(Nanos now) const {
  std::array<char, 128> text;
  std::snprintf(text.data(), text.size(),
                "no word from the coordinator for %.1f s, no step for %.1f s",
                base::to_seconds(now - acked_at_), base::to_seconds(now - committed_at_));
  return text.data();
}

}  // namespace perdure::runtime::membership
