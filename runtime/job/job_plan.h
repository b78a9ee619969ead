#pragma once
// JobPlan: who computes what in this job. A pure function of the JobConfig: every worker makes it
// for itself and comes to the same one.

#include "base/status.h"
#include "parallel/activation_plan.h"
#include "parallel/layout.h"
#include "parallel/model_spec.h"
#include "parallel/schedule.h"
#include "runtime/job/job_config.h"

namespace perdure::runtime::job {

struct JobPlan {
  parallel::ModelSpec model;
  parallel::Layout layout;
  parallel::Schedule schedule;  // has passed check_schedule
  parallel::BatchShape batch;
};

// kInvalidArgument as check_job.
base::Result<JobPlan> make_job_plan(const JobConfig& job);

}  // namespace perdure::runtime::job
