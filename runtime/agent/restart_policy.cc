#include "runtime/agent/restart_policy.h"

#include <algorithm>

namespace perdure::runtime::agent {

std::optional<base::Nanos> RestartPolicy::on_exit(base::Nanos lived) {
  if (lived >= options_.sound_after) in_a_row_ = 0;
  if (in_a_row_ >= options_.restarts_max) return std::nullopt;
  const uint32_t doublings = std::min<uint32_t>(in_a_row_++, 20);
  return std::min(options_.first_delay * (int64_t{1} << doublings), options_.delay_max);
}

}  // namespace perdure::runtime::agent
