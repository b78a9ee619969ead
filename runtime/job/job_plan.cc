#include "runtime/job/job_plan.h"

#include "parallel/layer_cost.h"
#include "parallel/schedule_check.h"
#include "parallel/schedule_makers.h"

namespace perdure::runtime::job {

base::Result<JobPlan> make_job_plan(const JobConfig& job) {
  RETURN_IF_ERROR(check_job(job));
  JobPlan plan;
  ASSIGN_OR_RETURN(plan.model, parallel::make_model_spec(job.model));
  ASSIGN_OR_RETURN(plan.layout, parallel::make_layout(plan.model,
                                                      {.pipelines = job.layout.pipelines,
                                                       .stages = job.layout.stages,
                                                       .micro_batches = job.batch.micro_batches,
                                                       .grain = job.numerics.grain},
                                                      parallel::relative_layer_costs(plan.model)));
  plan.batch = {.micro_batch = job.batch.micro_batch, .compute = job.numerics.compute};
  plan.schedule = parallel::make_schedule_1f1b(plan.model, plan.layout);
  const base::Status legal = parallel::check_schedule(plan.model, plan.layout, plan.schedule);
  CHECK(legal.is_ok()) << legal;
  return plan;
}

}  // namespace perdure::runtime::job
