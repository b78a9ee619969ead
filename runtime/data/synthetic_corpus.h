#pragma once
// A corpus made from a seed, for jobs that should run without any data: random text in which each
// token has a few likely successors, so that a model learns something within a few steps.

#include <cstdint>

#include "runtime/data/token_file.h"

namespace perdure::runtime::data {

struct SyntheticOptions {
  uint64_t tokens = 65536;
  uint64_t skip = 0;          // tokens of the same text that come before
  uint32_t vocabulary = 256;  // the text uses at most 64 of it, printable ASCII where there is room
  uint64_t seed = 0;
};

// The same tokens for the same options, everywhere. CHECKs vocabulary >= 2. A perfect model reaches
// a loss of 1.21 nats (each token has four successors, of odds 4:2:1:1).
TokenFile make_synthetic_corpus(const SyntheticOptions& options);

}  // namespace perdure::runtime::data
