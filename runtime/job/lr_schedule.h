#pragma once
// The learning rate of each step: rises in a line, then falls along half a cosine.
//
//   lr  |     .--.
//       |    /    `.
//       |   /       `-.___  lr * min_ratio
//       +--+----------+-----> step
//        warmup     decay

#include <cstdint>

#include "runtime/job/job_config.h"

namespace perdure::runtime::job {

struct LrSchedule {
  double lr = 1e-3;
  double min_ratio = 0.1;
  uint64_t warmup_steps = 0;
  uint64_t decay_steps = 0;  // >= warmup_steps
};

LrSchedule make_lr_schedule(const JobConfig& job);

// Rate of the step that commits step_index + 1, as nanoGPT counts: lr * (i + 1) / (warmup + 1)
// during warm-up, the minimum from decay_steps on. The same bits on every machine.
float learning_rate(const LrSchedule& schedule, uint64_t step_index);

}  // namespace perdure::runtime::job
