#include "runtime/job/job_data.h"

#include <optional>
#include <string>

#include "runtime/data/synthetic_corpus.h"

namespace perdure::runtime::job {
namespace {

using base::Result;
using base::Status;
using data::TokenFile;

struct Files {
  TokenFile training;
  std::optional<TokenFile> evaluation;
};

uint64_t evaluation_samples(const JobConfig& job) {
  return uint64_t{job.run.eval_batches} * static_cast<uint64_t>(job.batch.micro_batch);
}

Result<TokenFile> open_file(const JobConfig& job, const char* name) {
  const std::string path = job.data.path + "/" + name;
  Result<TokenFile> file = TokenFile::open(path);
  if (!file.is_ok()) return file.status().annotate("data.path");
  const std::string& tokenizer = file->info().tokenizer;
  if (!job.data.tokenizer.empty() && job.data.tokenizer != tokenizer) {
    return base::invalid_argument(path + ": was prepared with the tokenizer \"" + tokenizer +
                                  "\", data.tokenizer is \"" + job.data.tokenizer + "\"");
  }
  return file;
}

Result<Files> open_files(const JobConfig& job) {
  ASSIGN_OR_RETURN(TokenFile training, open_file(job, "train.tokens"));
  Files files{std::move(training), std::nullopt};
  if (job.run.eval_every > 0) {
    ASSIGN_OR_RETURN(files.evaluation, open_file(job, "val.tokens"));
  }
  return files;
}

Files make_files(const JobConfig& job) {
  data::SyntheticOptions options{.tokens = job.data.synthetic_tokens,
                                 .vocabulary = static_cast<uint32_t>(job.model.vocabulary),
                                 .seed = job.run.seed};
  Files files{data::make_synthetic_corpus(options), std::nullopt};
  if (job.run.eval_every > 0) {
    options.skip = options.tokens;
    options.tokens = evaluation_samples(job) * static_cast<uint64_t>(job.model.context) + 1;
    files.evaluation = data::make_synthetic_corpus(options);
  }
  return files;
}

}  // namespace

Result<data::DataSource> open_job_data(const JobConfig& job) {
  Result<Files> files = job.data.path.empty() ? Result<Files>(make_files(job)) : open_files(job);
  if (!files.is_ok()) return files.status();
  ASSIGN_OR_RETURN(
      data::DataSource source,
      data::DataSource::make(std::move(files->training), std::move(files->evaluation),
                             {.context = static_cast<uint64_t>(job.model.context),
                              .vocabulary = static_cast<uint32_t>(job.model.vocabulary),
                              .seed = job.run.seed}));
  if (job.run.eval_every > 0 && source.evaluation_samples() < evaluation_samples(job)) {
    return base::invalid_argument(job.data.path + "/val.tokens: has " +
                                  std::to_string(source.evaluation_samples()) +
                                  " samples of model.context tokens, run.eval_batches (" +
                                  std::to_string(job.run.eval_batches) + ") x batch.micro_batch (" +
                                  std::to_string(job.batch.micro_batch) + ") need " +
                                  std::to_string(evaluation_samples(job)));
  }
  return source;
}

}  // namespace perdure::runtime::job
