#include "runtime/job/lr_schedule.h"

#include "base/random.h"

namespace perdure::runtime::job {

LrSchedule make_lr_schedule(const JobConfig& job) {
  return {.lr = job.optimizer.lr,
          .min_ratio = job.optimizer.min_lr_ratio,
          .warmup_steps = job.optimizer.warmup_steps,
          .decay_steps = job.lr_decay_steps()};
}

float learning_rate(const LrSchedule& s, uint64_t step_index) {
  CHECK_LE(s.warmup_steps, s.decay_steps);
  if (step_index < s.warmup_steps) {
    const double part =
        static_cast<double>(step_index + 1) / static_cast<double>(s.warmup_steps + 1);
    return static_cast<float>(s.lr * part);
  }
  const double least = s.lr * s.min_ratio;
  if (step_index >= s.decay_steps) return static_cast<float>(least);
  const double progress = static_cast<double>(step_index - s.warmup_steps) /
                          static_cast<double>(s.decay_steps - s.warmup_steps);
  const double cosine = base::portable_sincos_turns(0.5 * progress).cos;
  return static_cast<float>(least + 0.5 * (1.0 + cosine) * (s.lr - least));
}

}  // namespace perdure::runtime::job
