#pragma once
// SimClock: one host's view of virtual time.

#include <utility>

#include "base/clock.h"
#include "chaos/event_heap.h"

namespace perdure::chaos {

// Timers belong to the host and vanish when it is killed. The host's boot offset makes clocks of
// hosts incomparable, as they are in the world. The heap outlives the clock.
class SimClock final : public base::Clock {
 public:
  SimClock(EventHeap& heap, const base::Nanos& world_now, uint32_t host, base::Nanos offset)
      : heap_(heap), world_now_(world_now), host_(host), offset_(offset) {}

  base::Nanos now() const override { return world_now_ + offset_; }

  // The virtual world begins on 1 January 2030.
  int64_t unix_ms() const override { return 1'893'456'000'000 + world_now_.count() / 1'000'000; }

  base::TimerId call_at(base::Nanos when, base::UniqueFunction<void()> callback) override {
    if (when == base::kNoDeadline) return base::TimerId::kNone;
    return heap_.add(std::max(when - offset_, world_now_), host_, std::move(callback));
  }
  void cancel(base::TimerId id) override { heap_.cancel(id); }

 private:
  EventHeap& heap_;
  const base::Nanos& world_now_;
  const uint32_t host_;
  const base::Nanos offset_;
};

}  // namespace perdure::chaos
