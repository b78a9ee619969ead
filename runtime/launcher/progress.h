#pragma once
// What a person sees while a job runs: one line that is rewritten on a terminal, plain lines now
// and then elsewhere.

#include <cstdint>
#include <string>

namespace perdure::runtime::launcher {

struct Progress {
  uint64_t step = 0;
  uint64_t steps = 0;
  double loss = 0.0;
  double val_loss = -1.0;  // below 0: none yet
  double tokens_per_s = 0.0;
  double seconds_per_step = 0.0;
};

// "step 120/1000  loss 2.3471  val 2.4012  8.4k tok/s  ETA 1m 40s"
std::string format_progress(const Progress& progress);
// "45s", "1m 40s", "2h 05m"
std::string format_duration(double seconds);

}  // namespace perdure::runtime::launcher
