#include "runtime/job/lr_schedule.h"

#include <cmath>

#include "tests/testing/matchers.h"

namespace perdure::runtime::job {
namespace {

// As nanoGPT's get_lr computes it, with the library's cosine.
double expected_rate(const LrSchedule& s, uint64_t i) {
  if (i < s.warmup_steps) {
    return s.lr * static_cast<double>(i + 1) / static_cast<double>(s.warmup_steps + 1);
  }
  if (i >= s.decay_steps) return s.lr * s.min_ratio;
  const double part =
      static_cast<double>(i - s.warmup_steps) / static_cast<double>(s.decay_steps - s.warmup_steps);
  const double least = s.lr * s.min_ratio;
  return least + 0.5 * (1.0 + std::cos(M_PI * part)) * (s.lr - least);
}

TEST(LrScheduleTest, EqualsTheFormula) {
  const LrSchedule schedule{.lr = 1e-3, .min_ratio = 0.1, .warmup_steps = 100, .decay_steps = 2000};
  for (uint64_t i = 0; i < 2200; ++i) {
    const double expected = expected_rate(schedule, i);
    ASSERT_NEAR(learning_rate(schedule, i), expected, expected * 1e-7) << "step " << i;
  }
  EXPECT_EQ(learning_rate(schedule, 100), 1e-3f);
  EXPECT_EQ(learning_rate(schedule, 2000), 1e-4f);
  EXPECT_EQ(learning_rate(schedule, UINT64_MAX), 1e-4f);
}

TEST(LrScheduleTest, RisesThenFalls) {
  const LrSchedule schedule{.lr = 1.0, .min_ratio = 0.0, .warmup_steps = 10, .decay_steps = 50};
  for (uint64_t i = 1; i <= 10; ++i) {
    EXPECT_GT(learning_rate(schedule, i), learning_rate(schedule, i - 1));
  }
  for (uint64_t i = 11; i <= 50; ++i) {
    EXPECT_LT(learning_rate(schedule, i), learning_rate(schedule, i - 1));
  }
  EXPECT_EQ(learning_rate(schedule, 50), 0.0f);
}

TEST(LrScheduleTest, WorksWithoutWarmUpOrDecay) {
  const LrSchedule constant{.lr = 0.5, .min_ratio = 1.0, .warmup_steps = 0, .decay_steps = 10};
  EXPECT_EQ(learning_rate(constant, 0), 0.5f);
  EXPECT_EQ(learning_rate(constant, 20), 0.5f);
  const LrSchedule no_fall{.lr = 0.5, .min_ratio = 0.1, .warmup_steps = 4, .decay_steps = 4};
  EXPECT_NEAR(learning_rate(no_fall, 3), 0.4f, 1e-7);
  EXPECT_NEAR(learning_rate(no_fall, 4), 0.05f, 1e-7);
}

TEST(LrScheduleTest, ComesFromTheJob) {
  JobConfig job;
  job.optimizer.lr = 0.25;
  job.optimizer.warmup_steps = 3;
  job.run.steps = 40;
  const LrSchedule schedule = make_lr_schedule(job);
  EXPECT_EQ(schedule.decay_steps, 40u);
  EXPECT_EQ(schedule.warmup_steps, 3u);
  job.optimizer.decay_steps = 20;
  EXPECT_EQ(make_lr_schedule(job).decay_steps, 20u);
}

}  // namespace
}  // namespace perdure::runtime::job
