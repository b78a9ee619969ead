#include "runtime/data/data_source.h"

#include <algorithm>
#include <string>

namespace perdure::runtime::data {
namespace {

using base::Result;
using base::Status;

Status check_file(const TokenFile& file, const DataSourceOptions& options) {
  const TokenFileInfo& info = file.info();
  if (info.token_count > 0 && info.token_max >= options.vocabulary) {
    return base::invalid_argument(
        file.name() + ": token " + std::to_string(info.token_max) + " >= vocabulary " +
        std::to_string(options.vocabulary) + "; set model.vocabulary to at least " +
        std::to_string(info.vocabulary) + " (tokenizer " + info.tokenizer + ")");
  }
  if (count_samples({.tokens = info.token_count, .context = options.context}) == 0) {
    return base::invalid_argument(
        file.name() + ": has " + std::to_string(info.token_count) +
        " tokens, one sample needs model.context + 1 = " + std::to_string(options.context + 1));
  }
  return Status::ok();
}

}  // namespace

Result<DataSource> DataSource::make(TokenFile training, std::optional<TokenFile> evaluation,
                                    const DataSourceOptions& options) {
  CHECK_GT(options.context, 0u);
  RETURN_IF_ERROR(check_file(training, options));
  if (evaluation) RETURN_IF_ERROR(check_file(*evaluation, options));
  return DataSource(std::move(training), std::move(evaluation), options);
}

DataSource::DataSource(TokenFile training, std::optional<TokenFile> evaluation,
                       const DataSourceOptions& options)
    : training_(std::move(training)),
      evaluation_(std::move(evaluation)),
      options_(options),
      order_({.samples = count_samples(
                  {.tokens = training_.info().token_count, .context = options.context}),
              .seed = options.seed}) {}

uint64_t DataSource::evaluation_samples() const {
  return evaluation_ ? count_samples(
                           {.tokens = evaluation_->info().token_count, .context = options_.context})
                     : 0;
}

void DataSource::fill_sample(const TokenFile& file, uint64_t sample, std::span<int32_t> tokens,
                             std::span<int32_t> targets) const {
  file.read(sample * options_.context, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  file.read((sample + 1) * options_.context, targets.last(1));
}

void DataSource::fill(uint64_t first_global_sample, uint64_t count, const Batch& batch) const {
  CHECK_EQ(batch.tokens.size(), count * options_.context);
  CHECK_EQ(batch.targets.size(), count * options_.context);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = i * options_.context;
    fill_sample(training_, order_.sample(first_global_sample + i),
                batch.tokens.subspan(at, options_.context),
                batch.targets.subspan(at, options_.context));
  }
}

void DataSource::fill_evaluation(uint64_t first_sample, uint64_t count, const Batch& batch) const {
  CHECK_LE(first_sample + count, evaluation_samples());
  CHECK_EQ(batch.tokens.size(), count * options_.context);
  CHECK_EQ(batch.targets.size(), count * options_.context);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t at = i * options_.context;
    fill_sample(*evaluation_, first_sample + i, batch.tokens.subspan(at, options_.context),
                batch.targets.subspan(at, options_.context));
  }
}

}  // namespace perdure::runtime::data
