#include "runtime/data/prepare.h"

#include <nlohmann/json.hpp>

#include "runtime/data/token_file.h"
#include "tests/runtime/data/data_fixtures.h"

namespace perdure::runtime::data {
namespace {

using base::StatusCode;
using testing::FullDiskFiles;
using ::testing::HasSubstr;
using testing::StatusIs;

class PrepareTest : public testing::TempDirTest {
 protected:
  PrepareOptions options(const std::string& text) {
    return {.inputs = {write("corpus.txt", text)}, .out_dir = path("out/deep")};
  }
  base::Result<PrepareReport> prepare(const PrepareOptions& o) {
    return prepare_data(files_, o, nullptr);
  }
  std::string text_of(const std::string& name) {
    const TokenFile file = TokenFile::open(path("out/deep/" + name)).value();
    std::vector<int32_t> tokens(file.info().token_count);
    file.read(0, tokens);
    return std::string(tokens.begin(), tokens.end());
  }
};

TEST_F(PrepareTest, SplitsByBytes) {
  ASSERT_OK_AND_ASSIGN(const PrepareReport report, prepare(options("0123456789abcdefghij")));
  EXPECT_EQ(report.bytes, 20u);
  EXPECT_EQ(report.train_tokens, 18u);
  EXPECT_EQ(report.val_tokens, 2u);
  EXPECT_EQ(text_of("train.tokens"), "0123456789abcdefgh");
  EXPECT_EQ(text_of("val.tokens"), "ij");
  const nlohmann::json json = nlohmann::json::parse(contents("out/deep/dataset.json"));
  EXPECT_EQ(json["tokenizer"], "byte");
  EXPECT_EQ(json["vocabulary"], 256);
  EXPECT_EQ(json["train"]["tokens"], 18);
  EXPECT_EQ(json["val"]["file"], "val.tokens");
}

TEST_F(PrepareTest, JoinsInputsAndReadsThemInPieces) {
  std::string big(3'000'000, 'a');
  for (size_t i = 0; i < big.size(); i += 97) big[i] = ' ';
  PrepareOptions o = options(big);
  o.inputs.push_back(write("empty.txt", ""));
  o.inputs.push_back(write("more.txt", "the end"));
  o.val_fraction = 0.25;
  std::vector<PrepareProgress> progress;
  ASSERT_OK(prepare_data(files_, o, [&](const PrepareProgress& p) { progress.push_back(p); }));
  EXPECT_EQ(text_of("train.tokens") + text_of("val.tokens"), big + "the end");
  EXPECT_GE(progress.size(), 4u);
  EXPECT_EQ(progress.back().bytes_done, big.size() + 7);
  EXPECT_EQ(progress.back().tokens, big.size() + 7);
}

TEST_F(PrepareTest, CutsBeforeACharacterNotInIt) {
  PrepareOptions o = options("abc\u20AC\u20ACz");  // two characters of three bytes
  o.val_fraction = 0.5;                            // byte 5 is inside the first
  ASSERT_OK(prepare(o));
  EXPECT_EQ(text_of("train.tokens"), "abc");
  EXPECT_EQ(text_of("val.tokens"), "\u20AC\u20ACz");
  PrepareOptions binary = options("ab\x80\x80\x80\x80\x80\x80zz");
  binary.val_fraction = 0.3;
  ASSERT_OK(prepare(binary));
  EXPECT_EQ(text_of("train.tokens").size(), 7u);
}

TEST_F(PrepareTest, WithoutValidationAnOldPartIsRemoved) {
  ASSERT_OK(prepare(options("0123456789")));
  PrepareOptions o = options("0123456789");
  o.val_fraction = 0.0;
  ASSERT_OK_AND_ASSIGN(const PrepareReport report, prepare(o));
  EXPECT_EQ(report.train_tokens, 10u);
  EXPECT_FALSE(exists("out/deep/val.tokens"));
  EXPECT_FALSE(nlohmann::json::parse(contents("out/deep/dataset.json")).contains("val"));
}

TEST_F(PrepareTest, RefusesWrongInput) {
  const StatusCode invalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(prepare(options("")),
              StatusIs(invalid, HasSubstr("corpus.txt: the corpus is empty")));
  EXPECT_THAT(prepare(options("x")), StatusIs(invalid, HasSubstr("too small for a val fraction")));
  PrepareOptions o = options("0123456789");
  o.inputs.clear();
  EXPECT_THAT(prepare(o), StatusIs(invalid, HasSubstr("no corpus file")));
  o = options("0123456789");
  o.out_dir = "";
  EXPECT_THAT(prepare(o), StatusIs(invalid, HasSubstr("--out")));
  for (const double fraction : {-0.1, 1.0, 2.0, std::nan("")}) {
    o = options("0123456789");
    o.val_fraction = fraction;
    EXPECT_THAT(prepare(o), StatusIs(invalid, HasSubstr("must be at least 0 and below 1")));
  }
  o = options("0123456789");
  o.inputs.push_back(path("missing.txt"));
  EXPECT_THAT(prepare(o), StatusIs(StatusCode::kNotFound, HasSubstr("missing.txt")));
  o = options("0123456789");
  o.inputs = {path("")};
  EXPECT_FALSE(prepare(o).is_ok());
  o = options("0123456789");
  o.tokenizer = {.kind = TokenizerKind::kGpt2,
                 .vocab_bpe = write("vocab.bpe", "a b\n"),
                 .encoder_json = write("encoder.json", "{]")};
  EXPECT_THAT(prepare(o), StatusIs(invalid, HasSubstr("encoder.json: is not JSON")));
  EXPECT_FALSE(exists("out"));
}

TEST_F(PrepareTest, AnOldPartThatCannotBeRemovedIsNamed) {
  std::filesystem::create_directories(path("out/deep/val.tokens/full"));
  PrepareOptions o = options("0123456789");
  o.val_fraction = 0.0;
  EXPECT_FALSE(prepare(o).is_ok());
  EXPECT_THAT(prepare(o).status().message(), HasSubstr("val.tokens"));
}

TEST_F(PrepareTest, ACorpusThatShrinksIsNoticed) {
  const PrepareOptions o = options("0123456789");
  testing::LongerFiles files(files_);
  EXPECT_THAT(prepare_data(files, o, nullptr),
              StatusIs(StatusCode::kDataLoss, HasSubstr("corpus.txt: became shorter")));
  EXPECT_FALSE(exists("out/deep/train.tokens"));
}

TEST_F(PrepareTest, OutputThatCannotBeWrittenIsNamed) {
  PrepareOptions o = options("0123456789");
  o.out_dir = write("a_file", "x");
  EXPECT_THAT(prepare(o).status().message(), HasSubstr("a_file"));
  EXPECT_FALSE(prepare(o).is_ok());
}

TEST_F(PrepareTest, AFullDiskLeavesNoHalfWrittenFile) {
  const PrepareOptions o = options("0123456789");
  int call = 0;
  for (;; ++call) {
    ASSERT_LT(call, 100);
    std::filesystem::remove_all(path("out"));
    FullDiskFiles disk(files_, call);
    const base::Status status = prepare_data(disk, o, nullptr).status();
    for (const char* name : {"train.tokens", "val.tokens"}) {
      if (!exists(std::string("out/deep/") + name)) continue;
      ASSERT_OK_AND_ASSIGN(const TokenFile file, TokenFile::open(path("out/deep/") + name));
      EXPECT_OK(file.verify());
    }
    if (status.is_ok()) break;
    EXPECT_THAT(status, StatusIs(StatusCode::kResourceExhausted));
    EXPECT_FALSE(exists("out/deep/train.tokens.tmp"));
  }
  EXPECT_GT(call, 15);
}

TEST_F(PrepareTest, PiecesDoNotChangeGpt2Tokens) {
  const std::string dir = testing::shared_data("corpus/gpt2_bpe");
  const std::string corpus = testing::shared_data("corpus/tinyshakespeare.txt");
  if (dir.empty() || corpus.empty()) GTEST_SKIP() << "needs ../shared/data/corpus";
  ASSERT_OK_AND_ASSIGN(const PrepareReport report,
                       prepare({.inputs = {corpus},
                                .out_dir = path("out/deep"),
                                .tokenizer = {.kind = TokenizerKind::kGpt2,
                                              .vocab_bpe = dir + "/vocab.bpe",
                                              .encoder_json = dir + "/encoder.json"}}));
  EXPECT_EQ(report.train_tokens, 301'966u);
  EXPECT_EQ(report.val_tokens, 36'059u);
}

}  // namespace
}  // namespace perdure::runtime::data
