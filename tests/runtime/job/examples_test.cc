// The job files under examples/ are right, in every layout that they promise.
#include <fstream>
#include <iterator>

#include "parallel/memory_plan.h"
#include "runtime/job/job_config.h"
#include "runtime/job/job_data.h"
#include "runtime/job/job_plan.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::job {
namespace {

std::string read_example(const std::string& name) {
  std::ifstream in("examples/" + name);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class ExampleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ExampleTest, LoadsAndPlans) {
  JobConfig job;
  ASSERT_OK(load_job(read_example(GetParam()), GetParam(), {}, &job));
  ASSERT_OK_AND_ASSIGN(const JobPlan plan, make_job_plan(job));
  EXPECT_GE(job.model.head_size(), 16);
  const parallel::WorkerMemory memory = parallel::plan_worker_memory(
      plan.model, plan.layout, plan.schedule, base::Rank(0), plan.batch, {});
  EXPECT_LT(memory.total(), int64_t{256} << 20);  // four workers fit on a small machine
}

INSTANTIATE_TEST_SUITE_P(All, ExampleTest,
                         ::testing::Values("tiny.toml", "tiny_gpt2.toml", "shakespeare.toml",
                                           "kjv.toml"));

TEST(TinyExampleTest, RunsInManyLayoutsWithoutAnyFile) {
  for (const char* name : {"tiny.toml", "tiny_gpt2.toml"}) {
    for (int pipelines = 1; pipelines <= 8; ++pipelines) {
      for (int stages = 1; stages <= 6; ++stages) {
        JobConfig job;
        ASSERT_OK(load_job(read_example(name), name,
                           {"layout.pipelines=" + std::to_string(pipelines),
                            "layout.stages=" + std::to_string(stages)},
                           &job));
        EXPECT_OK(make_job_plan(job));
      }
    }
    JobConfig job;
    ASSERT_OK(load_job(read_example(name), name, {}, &job));
    EXPECT_EQ(job.run.steps, 20u);
    EXPECT_OK(open_job_data(job));
  }
}

}  // namespace
}  // namespace perdure::runtime::job
