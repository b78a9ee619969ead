#pragma once
// DataSource: gives the engine its samples. Stateless apart from the files: what to read is said by
// the caller, who owns the DataCursor, so reading ahead or reading twice does no harm.

#include <cstdint>
#include <optional>
#include <span>

#include "base/status.h"
#include "runtime/data/sample_order.h"
#include "runtime/data/token_file.h"

namespace perdure::runtime::data {

struct DataSourceOptions {
  uint64_t context = 0;     // tokens per sample
  uint32_t vocabulary = 0;  // of the model
  uint64_t seed = 0;        // of the order of training samples
};

// Any number of threads.
class DataSource {
 public:
  // kInvalidArgument: a file has fewer tokens than one sample, or a token that the model has no row
  // for. `evaluation` may be absent.
  static base::Result<DataSource> make(TokenFile training, std::optional<TokenFile> evaluation,
                                       const DataSourceOptions& options);

  // Room for `count` samples: tokens and targets [count, context].
  struct Batch {
    std::span<int32_t> tokens;
    std::span<int32_t> targets;
  };

  // Training samples first_global_sample, +1, ... of the job. Any number: the data begin again, in
  // another order, when all of them were used.
  void fill(uint64_t first_global_sample, uint64_t count, const Batch& batch) const;

  // Evaluation samples in file order, always the same ones. CHECKs that they are there.
  void fill_evaluation(uint64_t first_sample, uint64_t count, const Batch& batch) const;

  uint64_t samples_per_epoch() const { return order_.samples(); }
  uint64_t evaluation_samples() const;  // 0 without evaluation data
  uint64_t context() const { return options_.context; }
  const TokenFile& training() const { return training_; }

 private:
  DataSource(TokenFile training, std::optional<TokenFile> evaluation,
             const DataSourceOptions& options);
  void fill_sample(const TokenFile& file, uint64_t sample, std::span<int32_t> tokens,
                   std::span<int32_t> targets) const;

  TokenFile training_;
  std::optional<TokenFile> evaluation_;
  DataSourceOptions options_;
  SampleOrder order_;
};

}  // namespace perdure::runtime::data
