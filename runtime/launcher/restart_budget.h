#pragma once
// RestartBudget: may a process that died be started again? At most so many times in a window. Pure.

#include <cstdint>
#include <deque>

#include "base/units.h"

namespace perdure::runtime::launcher {

class RestartBudget {
 public:
  RestartBudget(size_t count_max, base::Nanos window) : count_max_(count_max), window_(window) {}

  // Takes one when there is one left.
  bool take(base::Nanos now) {
    while (!taken_.empty() && now - taken_.front() >= window_) taken_.pop_front();
    if (taken_.size() >= count_max_) return false;
    taken_.push_back(now);
    return true;
  }

 private:
  const size_t count_max_;
  const base::Nanos window_;
  std::deque<base::Nanos> taken_;
};

}  // namespace perdure::runtime::launcher
