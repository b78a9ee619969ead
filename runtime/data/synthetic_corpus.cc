#include "runtime/data/synthetic_corpus.h"

#include <algorithm>
#include <array>

#include "base/random.h"

namespace perdure::runtime::data {
namespace {

constexpr uint32_t kLettersMax = 64;
constexpr uint32_t kFirstPrintable = 32;

// Successors of each letter: the likeliest first. The first one leads round all letters, so none is
// ever out of reach.
using Successors = std::array<uint32_t, 4>;

std::vector<Successors> make_chain(uint32_t letters, base::SeededRandom& random) {
  std::vector<uint32_t> ring(letters);
  for (uint32_t i = 0; i < letters; ++i) ring[i] = i;
  for (uint32_t i = letters; i > 1; --i) std::swap(ring[i - 1], ring[random.uniform_int(i)]);
  std::vector<Successors> chain(letters);
  for (uint32_t i = 0; i < letters; ++i) {
    Successors& successors = chain[ring[i]];
    successors[0] = ring[(i + 1) % letters];
    for (size_t s = 1; s < successors.size(); ++s) {
      successors[s] = static_cast<uint32_t>(random.uniform_int(letters));
    }
  }
  return chain;
}

}  // namespace

TokenFile make_synthetic_corpus(const SyntheticOptions& options) {
  CHECK_GE(options.vocabulary, 2u);
  constexpr uint64_t kStream = 0x636F72707573;  // "corpus"
  base::SeededRandom random(options.seed, kStream);
  const uint32_t letters = std::min(options.vocabulary, kLettersMax);
  const uint32_t first = options.vocabulary >= kFirstPrintable + letters ? kFirstPrintable : 0;
  const std::vector<Successors> chain = make_chain(letters, random);
  std::vector<TokenId> tokens(options.tokens);
  uint32_t letter = 0;
  for (uint64_t i = 0; i < options.skip + options.tokens; ++i) {
    if (i >= options.skip) tokens[i - options.skip] = first + letter;
    const uint64_t draw = random.uniform_int(8);
    letter = chain[letter][draw < 4 ? 0 : draw < 6 ? 1 : draw < 7 ? 2 : 3];
  }
  return TokenFile::in_memory({.name = "synthetic corpus",
                               .tokenizer = options.vocabulary == 256 ? "byte" : "none",
                               .vocabulary = options.vocabulary,
                               .tokens = std::move(tokens)});
}

}  // namespace perdure::runtime::data
