#include "checkpoint/retention.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace perdure::checkpoint {

std::vector<uint64_t> steps_to_remove(std::span<const uint64_t> committed,
                                      const RetentionRule& rule) {
  CHECK(std::is_sorted(committed.begin(), committed.end()));
  // A step may be there twice (two epochs have saved it): it counts once and goes as one.
  std::vector<uint64_t> steps(committed.begin(), committed.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());

  const size_t keep_last = std::max<size_t>(rule.keep_last, 1);
  const size_t old_count = steps.size() - std::min(steps.size(), keep_last);
  const auto is_kept = [&](uint64_t step) {
    if (rule.keep_every != 0 && step % rule.keep_every == 0) return true;
    return std::find(rule.keep_steps.begin(), rule.keep_steps.end(), step) != rule.keep_steps.end();
  };
  steps.resize(old_count);
  std::erase_if(steps, is_kept);
  return steps;
}

}  // namespace perdure::checkpoint
