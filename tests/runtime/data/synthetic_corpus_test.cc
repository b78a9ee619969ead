#include "runtime/data/synthetic_corpus.h"

#include <cmath>
#include <map>

#include "tests/testing/matchers.h"

namespace perdure::runtime::data {
namespace {

std::vector<int32_t> all_tokens(const TokenFile& file) {
  std::vector<int32_t> tokens(file.info().token_count);
  file.read(0, tokens);
  return tokens;
}

TEST(SyntheticCorpusTest, IsTheSameForTheSameSeed) {
  const SyntheticOptions options{.tokens = 5000, .vocabulary = 256, .seed = 1};
  EXPECT_EQ(all_tokens(make_synthetic_corpus(options)), all_tokens(make_synthetic_corpus(options)));
  EXPECT_NE(all_tokens(make_synthetic_corpus(options)),
            all_tokens(make_synthetic_corpus({.tokens = 5000, .vocabulary = 256, .seed = 2})));
  EXPECT_EQ(make_synthetic_corpus(options).info().payload_hash, 0x77C74461B2E67575u);
}

TEST(SyntheticCorpusTest, SkippingGoesOnInTheSameText) {
  std::vector<int32_t> whole = all_tokens(make_synthetic_corpus({.tokens = 300, .seed = 4}));
  whole.erase(whole.begin(), whole.begin() + 100);
  EXPECT_EQ(all_tokens(make_synthetic_corpus({.tokens = 200, .skip = 100, .seed = 4})), whole);
}

TEST(SyntheticCorpusTest, FitsAnyVocabulary) {
  for (const uint32_t vocabulary : {2u, 3u, 64u, 95u, 96u, 50257u, 100000u}) {
    const TokenFile file = make_synthetic_corpus({.tokens = 2000, .vocabulary = vocabulary});
    EXPECT_LT(file.info().token_max, vocabulary);
    EXPECT_OK(file.verify());
  }
}

TEST(SyntheticCorpusTest, CanBeLearned) {
  const std::vector<int32_t> tokens = all_tokens(make_synthetic_corpus({.tokens = 65536}));
  std::map<int32_t, double> one;
  std::map<std::pair<int32_t, int32_t>, double> two;
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    ++one[tokens[i]];
    ++two[{tokens[i], tokens[i + 1]}];
  }
  double loss = 0.0;  // of a model that knows all pairs
  for (const auto& [pair, count] : two) loss -= count * std::log(count / one[pair.first]);
  loss /= static_cast<double>(tokens.size());
  EXPECT_GT(one.size(), 60u);
  EXPECT_LT(loss, 1.25);
  EXPECT_GT(loss, 1.0);
}

}  // namespace
}  // namespace perdure::runtime::data
