#include "runtime/job/job_plan.h"

#include "tests/testing/matchers.h"

namespace perdure::runtime::job {
namespace {

using base::StatusCode;
using ::testing::HasSubstr;
using testing::StatusIs;

JobConfig small_job() {
  JobConfig job;
  job.model.layers = 4;
  job.model.width = 64;
  job.data.synthetic_tokens = 1000;
  job.batch = {.micro_batch = 2, .micro_batches = 8};
  return job;
}

TEST(JobPlanTest, FollowsTheConfig) {
  JobConfig job = small_job();
  job.layout = {.pipelines = 3, .stages = 2};
  job.numerics.compute = parallel::ComputeType::kBF16;
  ASSERT_OK_AND_ASSIGN(const JobPlan plan, make_job_plan(job));
  EXPECT_EQ(plan.layout.ranks(), 6u);
  EXPECT_EQ(plan.schedule.stages.size(), 6u);
  EXPECT_EQ(plan.batch.micro_batch, 2);
  EXPECT_EQ(plan.batch.compute, parallel::ComputeType::kBF16);
  EXPECT_EQ(plan.layout.pipelines[0].micro_batch_end, 3u);
}

TEST(JobPlanTest, EveryWorkerMakesTheSamePlan) {
  JobConfig job = small_job();
  job.layout = {.pipelines = 2, .stages = 3};
  const JobPlan a = make_job_plan(job).value();
  const JobPlan b = make_job_plan(job).value();
  for (size_t r = 0; r < a.schedule.stages.size(); ++r) {
    EXPECT_EQ(a.schedule.stages[r], b.schedule.stages[r]);
  }
}

TEST(JobPlanTest, GrainsStayTogether) {
  JobConfig job = small_job();
  job.layout.pipelines = 3;
  job.numerics.grain = 2;
  const JobPlan plan = make_job_plan(job).value();
  for (const parallel::PipelinePlace& pipeline : plan.layout.pipelines) {
    EXPECT_EQ(pipeline.micro_batch_begin % 2, 0u);
  }
}

TEST(JobPlanTest, RefusesAJobThatCannotBe) {
  JobConfig job = small_job();
  job.layout.stages = 7;
  EXPECT_THAT(make_job_plan(job),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("layout.stages (7)")));
}

}  // namespace
}  // namespace perdure::runtime::job
