#pragma once
// Opens the data that a job file names.

#include "base/status.h"
#include "runtime/data/data_source.h"
#include "runtime/job/job_config.h"

namespace perdure::runtime::job {

// Training data, and evaluation data if the job evaluates. Synthetic data are made here; their
// evaluation part goes on where the training part ends. Blocks.
//
// kInvalidArgument names the file and the key: a tokenizer other than data.tokenizer, tokens beyond
// model.vocabulary, fewer tokens than one sample, fewer evaluation samples than run.eval_batches
// need. kNotFound, kDataLoss: as TokenFile::open.
base::Result<data::DataSource> open_job_data(const JobConfig& job);

}  // namespace perdure::runtime::job
