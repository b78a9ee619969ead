#include "runtime/data/data_source.h"

#include <set>

#include "tests/testing/matchers.h"

namespace perdure::runtime::data {
namespace {

using base::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

// Tokens 0, 1, 2, ...: a token tells its own position.
TokenFile counting_file(uint32_t tokens, const std::string& name = "train.tokens") {
  std::vector<TokenId> list(tokens);
  for (uint32_t i = 0; i < tokens; ++i) list[i] = i;
  return TokenFile::in_memory(
      {.name = name, .tokenizer = "byte", .vocabulary = tokens + 1, .tokens = list});
}

DataSource make_source(uint32_t tokens, uint32_t val_tokens) {
  return DataSource::make(counting_file(tokens), counting_file(val_tokens, "val.tokens"),
                          {.context = 4, .vocabulary = 1000, .seed = 5})
      .value();
}

struct Buffers {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
  explicit Buffers(size_t size) : tokens(size), targets(size) {}
  DataSource::Batch batch() { return {tokens, targets}; }
};

TEST(DataSourceTest, TargetsAreTheNextTokens) {
  const DataSource source = make_source(101, 9);
  EXPECT_EQ(source.samples_per_epoch(), 25u);
  Buffers buffers(25 * 4);
  source.fill(0, 25, buffers.batch());
  std::set<int32_t> starts;
  for (size_t i = 0; i < buffers.tokens.size(); ++i) {
    EXPECT_EQ(buffers.targets[i], buffers.tokens[i] + 1);
    if (i % 4 == 0) starts.insert(buffers.tokens[i]);
  }
  EXPECT_EQ(starts.size(), 25u);
  EXPECT_EQ(*starts.rbegin(), 96);
}

TEST(DataSourceTest, AnyCutOfABatchGivesTheSameSamples) {
  const DataSource source = make_source(101, 9);
  Buffers whole(10 * 4);
  source.fill(20, 10, whole.batch());  // crosses the end of the data epoch
  for (uint64_t i = 0; i < 10; ++i) {
    Buffers one(4);
    source.fill(20 + i, 1, one.batch());
    for (size_t t = 0; t < 4; ++t) EXPECT_EQ(one.tokens[t], whole.tokens[i * 4 + t]);
  }
}

TEST(DataSourceTest, EvaluationIsInFileOrder) {
  const DataSource source = make_source(101, 10);
  EXPECT_EQ(source.evaluation_samples(), 2u);
  Buffers buffers(2 * 4);
  source.fill_evaluation(0, 2, buffers.batch());
  EXPECT_THAT(buffers.tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(buffers.targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(DataSourceTest, EvaluationMayBeAbsent) {
  const DataSource source =
      DataSource::make(counting_file(9), std::nullopt, {.context = 4, .vocabulary = 10}).value();
  EXPECT_EQ(source.evaluation_samples(), 0u);
}

TEST(DataSourceTest, RefusesTokensBeyondTheModel) {
  EXPECT_THAT(DataSource::make(counting_file(301), std::nullopt, {.context = 4, .vocabulary = 256}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("train.tokens: token 300 >= vocabulary 256; set "
                                 "model.vocabulary to at least 302 (tokenizer byte)")));
  EXPECT_THAT(DataSource::make(counting_file(100), counting_file(300, "val.tokens"),
                               {.context = 4, .vocabulary = 256}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("val.tokens: token 299")));
}

TEST(DataSourceTest, RefusesACorpusShorterThanOneSample) {
  EXPECT_THAT(
      DataSource::make(counting_file(4), std::nullopt, {.context = 4, .vocabulary = 256}),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("train.tokens: has 4 tokens, one sample needs model.context + 1 = 5")));
  EXPECT_THAT(DataSource::make(counting_file(50), counting_file(0, "val.tokens"),
                               {.context = 4, .vocabulary = 256}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("val.tokens: has 0 tokens")));
}

TEST(DataSourceDeathTest, ChecksBuffersAndRange) {
  const DataSource source = make_source(101, 10);
  Buffers buffers(4);
  EXPECT_DEATH(source.fill(0, 2, buffers.batch()), "check failed");
  EXPECT_DEATH(source.fill_evaluation(2, 1, buffers.batch()), "check failed");
}

}  // namespace
}  // namespace perdure::runtime::data
