#pragma once
// Turns text files into a data directory: train.tokens, val.tokens, dataset.json.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "runtime/data/tokenizer.h"

namespace perdure::runtime::data {

struct PrepareOptions {
  std::vector<std::string> inputs;  // joined in this order, nothing between them
  std::string out_dir;              // made when missing
  TokenizerSpec tokenizer;
  double val_fraction = 0.1;  // the end of the text, by bytes; 0: no val.tokens
};

struct PrepareProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  uint64_t tokens = 0;
};

struct PrepareReport {
  uint64_t bytes = 0;
  uint64_t train_tokens = 0;
  uint64_t val_tokens = 0;
  uint32_t vocabulary = 0;
};

// Reads in pieces: memory does not grow with the corpus. `progress` may be empty. The files are
// read back and verified. On an error no file under its final name is half-written.
// kInvalidArgument: no or empty input, fraction not in [0, 1), a part without tokens, a bad
// tokenizer file. kNotFound: a missing file. Else errors of the file system, which name the path.
base::Result<PrepareReport> prepare_data(
    base::FileSystem& files, const PrepareOptions& options,
    const std::function<void(const PrepareProgress&)>& progress);

}  // namespace perdure::runtime::data
