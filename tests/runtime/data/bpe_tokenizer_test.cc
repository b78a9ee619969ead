// All tokenizers; byte-pair encoding against a plain loop and against the published GPT-2 files.
#include "runtime/data/bpe_tokenizer.h"

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>

#include "base/random.h"
#include "runtime/data/byte_tokenizer.h"
#include "tests/runtime/data/data_fixtures.h"

namespace perdure::runtime::data {
namespace {

using base::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

// The published spelling of a byte.
std::string spell(unsigned byte) {
  const auto printable = [](unsigned b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  unsigned code = byte;
  if (!printable(byte)) {
    code = 0x100;
    for (unsigned b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

// 256 bytes and the merges of "a b" lists; ids in order.
struct Toy {
  nlohmann::json table;
  std::string merges = "#version: 0.2\n";

  Toy() {
    for (unsigned b = 0; b < 256; ++b) table[spell(b)] = b;
  }
  void merge(const std::string& left, const std::string& right) {
    merges += left + " " + right + "\n";
    if (!table.contains(left + right)) table[left + right] = table.size();
  }
  base::Result<BpeVocabulary> parse() const {
    const std::string text = table.dump();
    return parse_bpe_vocabulary({.merges = merges,
                                 .merges_name = "vocab.bpe",
                                 .table = text,
                                 .table_name = "encoder.json"});
  }
};

TEST(ByteTokenizerTest, GivesBytesAndTakesThemBack) {
  ByteTokenizer tokenizer;
  std::vector<TokenId> tokens;
  tokenizer.encode("A\xFF", tokens);
  EXPECT_THAT(tokens, ElementsAre(65u, 255u));
  std::string text;
  ASSERT_OK(tokenizer.decode(tokens, text));
  EXPECT_EQ(text, "A\xFF");
  EXPECT_THAT(tokenizer.decode(std::vector<TokenId>{256}, text),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("token 256 is not a byte")));
}

TEST(BpeTokenizerTest, MergesTheEarliestPairFirst) {
  Toy toy;
  toy.merge("b", "c");
  toy.merge("a", "b");
  toy.merge("a", "bc");
  toy.merge("\u0120", "a");  // a blank, as the files spell it
  BpeTokenizer tokenizer(toy.parse().value());
  EXPECT_EQ(tokenizer.vocabulary(), 260u);
  std::vector<TokenId> tokens;
  tokenizer.encode("abc ab", tokens);
  EXPECT_THAT(tokens, ElementsAre(258u, ' ', 257u));
}

TEST(BpeTokenizerTest, LongRunsMergeFromTheLeft) {
  Toy toy;
  toy.merge("a", "a");
  toy.merge("aa", "aa");
  BpeTokenizer tokenizer(toy.parse().value());
  std::vector<TokenId> tokens;
  tokenizer.encode(std::string(7, 'a'), tokens);
  EXPECT_THAT(tokens, ElementsAre(257u, 256u, 'a'));
  // A piece of a million letters takes no time worth mentioning.
  tokens.clear();
  tokenizer.encode(std::string(1'000'000, 'a'), tokens);
  EXPECT_EQ(tokens.size(), 250'000u);
}

// The loop as Sennrich et al. print it: merge every place of the best pair, again and again.
std::vector<TokenId> naive_merge(const std::vector<BpeMerge>& merges, std::vector<TokenId> word) {
  while (true) {
    size_t best = merges.size();
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      for (size_t m = 0; m < best; ++m) {
        if (merges[m].left == word[i] && merges[m].right == word[i + 1]) best = m;
      }
    }
    if (best == merges.size()) return word;
    std::vector<TokenId> next;
    for (size_t i = 0; i < word.size(); ++i) {
      const bool here =
          i + 1 < word.size() && word[i] == merges[best].left && word[i + 1] == merges[best].right;
      next.push_back(here ? merges[best].merged : word[i]);
      if (here) ++i;
    }
    word = std::move(next);
  }
}

TEST(BpeMergerTest, EqualsThePlainLoopOnRandomVocabularies) {
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 300; ++round) {
    // Merges as training makes them: of tokens that exist, each new.
    std::vector<std::string> spelled{"a", "b", "c"};
    std::map<std::string, TokenId> ids{{"a", 0}, {"b", 1}, {"c", 2}};
    std::vector<BpeMerge> merges;
    for (uint64_t n = random.uniform_int(12); n > 0; --n) {
      const std::string left = spelled[random.uniform_int(spelled.size())];
      const std::string right = spelled[random.uniform_int(spelled.size())];
      const TokenId id = static_cast<TokenId>(ids.size());
      if (!ids.emplace(left + right, id).second) continue;
      spelled.push_back(left + right);
      merges.push_back({ids[left], ids[right], id});
    }
    BpeMerger merger(merges);
    for (int word = 0; word < 20; ++word) {
      std::vector<TokenId> piece(1 + random.uniform_int(40));
      for (TokenId& token : piece) token = static_cast<TokenId>(random.uniform_int(3));
      std::vector<TokenId> merged;
      merger.merge(piece, merged);
      ASSERT_EQ(merged, naive_merge(merges, piece)) << "round " << round;
    }
  }
}

TEST(BpeTokenizerTest, RefusesBadTables) {
  struct Case {
    std::string table;
    std::string message;
  };
  Toy toy;
  toy.merge("a", "b");
  const auto spoiled = [&toy](auto&& spoil) {
    nlohmann::json table = toy.table;
    spoil(table);
    return table.dump();
  };
  const std::vector<Case> cases = {
      {"{", "encoder.json: is not JSON"},
      {"[1, 2]", "encoder.json: is not a JSON object"},
      {spoiled([](auto& t) { t["a"] = "x"; }), "token \"a\" has the id \"x\""},
      {spoiled([](auto& t) { t["a"] = -1; }), "token \"a\" has the id -1; ids must be 0 to 256"},
      {spoiled([](auto& t) { t["a"] = 98; }), "has the id 98"},
      {spoiled([](auto& t) { t["a"] = 999; }), "has the id 999"},
      {spoiled([](auto& t) {
         t.erase("a");
         t["\u4E00"] = 97;
       }),
       "does not spell bytes"},
      {spoiled([](auto& t) {
         t.erase("a");
         t["zz"] = 97;
       }),
       "no token for the byte 97"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(parse_bpe_vocabulary({.merges = toy.merges,
                                      .merges_name = "vocab.bpe",
                                      .table = c.table,
                                      .table_name = "encoder.json"}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(BpeTokenizerTest, RefusesBadMerges) {
  const auto parse = [](const std::string& merges) {
    Toy toy;
    toy.merges = merges;
    return toy.parse();
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(parse("#version: 0.2\n"), StatusIs(invalid, HasSubstr("vocab.bpe: has no merges")));
  EXPECT_THAT(parse("#version: 0.2\nab\n"),
              StatusIs(invalid, HasSubstr("vocab.bpe:2: is not two tokens")));
  EXPECT_THAT(parse("a b c\n"), StatusIs(invalid, HasSubstr("vocab.bpe:1: is not two tokens")));
  EXPECT_THAT(parse("a b\n"), StatusIs(invalid, HasSubstr("does not have")));
  EXPECT_THAT(parse("a \u4E00\n"), StatusIs(invalid, HasSubstr("does not spell bytes")));
}

TEST(BpeTokenizerTest, TakesLinesThatEndInCrLf) {
  Toy toy;
  toy.merge("a", "b");
  toy.merges = "#version: 0.2\r\na b\r\n";
  EXPECT_EQ(toy.parse().value().merges.size(), 1u);
}

TEST(BpeTokenizerTest, DecodeRefusesForeignTokens) {
  Toy toy;
  toy.merge("a", "b");
  const BpeTokenizer tokenizer(toy.parse().value());
  std::string text;
  EXPECT_THAT(tokenizer.decode(std::vector<TokenId>{'x', 256, 257}, text),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("token 257")));
  EXPECT_EQ(text, "xab");
}

using MakeTokenizerTest = testing::TempDirTest;

TEST_F(MakeTokenizerTest, NeedsItsFiles) {
  EXPECT_EQ(make_tokenizer(files_, {}).value()->name(), "byte");
  TokenizerSpec spec{.kind = TokenizerKind::kGpt2};
  EXPECT_THAT(make_tokenizer(files_, spec),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("needs --vocab-bpe")));
  spec.vocab_bpe = path("none.bpe");
  EXPECT_THAT(make_tokenizer(files_, spec), StatusIs(StatusCode::kNotFound, HasSubstr("none.bpe")));
  Toy toy;
  toy.merge("a", "b");
  spec.vocab_bpe = write("vocab.bpe", toy.merges);
  EXPECT_THAT(make_tokenizer(files_, spec),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("needs --encoder-json")));
  spec.encoder_json = write("huge.json", "{");
  std::filesystem::resize_file(spec.encoder_json, (64 << 20) + 1);
  EXPECT_THAT(make_tokenizer(files_, spec),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("huge.json")));
  spec.encoder_json = write("encoder.json", toy.table.dump());
  EXPECT_EQ(make_tokenizer(files_, spec).value()->vocabulary(), 257u);
}

// With the files that were published with GPT-2.
class Gpt2FilesTest : public testing::TempDirTest {
 protected:
  std::unique_ptr<Tokenizer> make() {
    const std::string dir = testing::shared_data("corpus/gpt2_bpe");
    if (dir.empty()) return nullptr;
    return make_tokenizer(files_, {.kind = TokenizerKind::kGpt2,
                                   .vocab_bpe = dir + "/vocab.bpe",
                                   .encoder_json = dir + "/encoder.json"})
        .value();
  }
};

#define SKIP_WITHOUT(what, name) \
  if (!(what)) GTEST_SKIP() << "needs ../shared/data/" name

TEST_F(Gpt2FilesTest, EncodesWhatIsKnown) {
  const std::unique_ptr<Tokenizer> tokenizer = make();
  SKIP_WITHOUT(tokenizer, "corpus/gpt2_bpe");
  EXPECT_EQ(tokenizer->vocabulary(), 50257u);
  std::vector<TokenId> tokens;
  tokenizer->encode("Hello world", tokens);
  EXPECT_THAT(tokens, ElementsAre(15496u, 995u));
  std::string text;
  ASSERT_OK(tokenizer->decode(std::vector<TokenId>{50256}, text));
  EXPECT_EQ(text, "<|endoftext|>");
}

TEST_F(Gpt2FilesTest, CountsTheTokensOfTinyShakespeare) {
  const std::unique_ptr<Tokenizer> tokenizer = make();
  const std::string corpus = testing::shared_data("corpus/tinyshakespeare.txt");
  SKIP_WITHOUT(tokenizer && !corpus.empty(), "corpus/{gpt2_bpe,tinyshakespeare.txt}");
  std::ifstream in(corpus, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  const size_t cut = static_cast<size_t>(static_cast<double>(text.size()) * 0.9);
  std::vector<TokenId> train;
  std::vector<TokenId> val;
  tokenizer->encode(text.substr(0, cut), train);
  tokenizer->encode(text.substr(cut), val);
  EXPECT_EQ(train.size(), 301'966u);
  EXPECT_EQ(val.size(), 36'059u);
  std::string back;
  ASSERT_OK(tokenizer->decode(train, back));
  EXPECT_EQ(back, text.substr(0, cut));
}

TEST_F(Gpt2FilesTest, TakesBackAnyBytes) {
  const std::unique_ptr<Tokenizer> tokenizer = make();
  SKIP_WITHOUT(tokenizer, "corpus/gpt2_bpe");
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 200; ++round) {
    std::string text(random.uniform_int(400), '\0');
    const bool ascii = round % 2 == 0;
    for (char& c : text) c = static_cast<char>(random.uniform_int(ascii ? 128 : 256));
    std::vector<TokenId> tokens;
    tokenizer->encode(text, tokens);
    std::string back;
    ASSERT_OK(tokenizer->decode(tokens, back));
    ASSERT_EQ(back, text) << "round " << round;
  }
}

}  // namespace
}  // namespace perdure::runtime::data
