#pragma once
// RestartPolicy: whether and when a worker whose process has ended is started again. Pure.
//
// Each restart in a row waits twice as long as the one before. A process that lived for a minute
// was sound: the counting starts anew.

#include <cstdint>
#include <optional>

#include "base/units.h"

namespace perdure::runtime::agent {

struct RestartOptions {
  uint32_t restarts_max = 3;  // in a row; 0: never started again
  base::Nanos first_delay = std::chrono::seconds(1);
  base::Nanos delay_max = std::chrono::seconds(60);
  base::Nanos sound_after = std::chrono::minutes(1);
};

class RestartPolicy {
 public:
  explicit RestartPolicy(const RestartOptions& options) : options_(options) {}

  // A process ended that had lived for `lived`. How long to wait; nothing: no more restarts.
  std::optional<base::Nanos> on_exit(base::Nanos lived);
  // A person wants it back: counts anew.
  void forgive() { in_a_row_ = 0; }
  uint32_t in_a_row() const { return in_a_row_; }

 private:
  RestartOptions options_;
  uint32_t in_a_row_ = 0;
};

}  // namespace perdure::runtime::agent
