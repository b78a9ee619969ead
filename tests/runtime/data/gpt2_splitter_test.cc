#include "runtime/data/gpt2_splitter.h"

#include <string>
#include <vector>

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::data {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t bytes = gpt2_piece_bytes(text);
    pieces.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return pieces;
}

TEST(Gpt2SplitterTest, SplitsWordsNumbersAndSigns) {
  EXPECT_THAT(split("Hello, world! It's 2026."),
              ElementsAre("Hello", ",", " world", "!", " It", "'s", " 2026", "."));
  EXPECT_THAT(split("a1b2"), ElementsAre("a", "1", "b", "2"));
  EXPECT_THAT(split("x--y  z"), ElementsAre("x", "--", "y", " ", " z"));
}

TEST(Gpt2SplitterTest, ContractionsAreLowerCaseOnly) {
  EXPECT_THAT(split("we'll I'VE they're 'tis"),
              ElementsAre("we", "'ll", " I", "'", "VE", " they", "'re", " '", "tis"));
  EXPECT_THAT(split("''s"), ElementsAre("''", "s"));
  EXPECT_THAT(split("'sat"), ElementsAre("'s", "at"));
  EXPECT_THAT(split("'r"), ElementsAre("'", "r"));
  EXPECT_THAT(split("'"), ElementsAre("'"));
}

TEST(Gpt2SplitterTest, BlanksLeaveOneForTheNextWord) {
  EXPECT_THAT(split("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(split("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(split("a\n b"), ElementsAre("a", "\n", " b"));
  EXPECT_THAT(split("a \n"), ElementsAre("a", " \n"));
  EXPECT_THAT(split(" "), ElementsAre(" "));
  EXPECT_THAT(split(" a"), ElementsAre(" a"));
  EXPECT_THAT(split("\ta"), ElementsAre("\t", "a"));
  EXPECT_THAT(split("  !"), ElementsAre(" ", " !"));
}

TEST(Gpt2SplitterTest, KnowsUnicodeClasses) {
  EXPECT_THAT(split("na\u00EFve caf\u00E9"), ElementsAre("na\u00EFve", " caf\u00E9"));
  EXPECT_THAT(split("\u65E5\u672C\u8A9E 5\u00BD"),
              ElementsAre("\u65E5\u672C\u8A9E", " 5\u00BD"));       // one half is a number
  EXPECT_THAT(split("a\u00A0b"), ElementsAre("a", "\u00A0", "b"));  // a space, but not ' '
  EXPECT_THAT(split("e\u0301"), ElementsAre("e", "\u0301"));        // a mark is no letter
  EXPECT_THAT(split("\u2163x"), ElementsAre("\u2163", "x"));        // roman four: a number
  EXPECT_THAT(split("\u3000\u3000a"), ElementsAre("\u3000", "\u3000", "a"));
}

TEST(Gpt2SplitterTest, BrokenUtf8IsNoClass) {
  EXPECT_THAT(split("a\xFF\xC3!b"), ElementsAre("a", "\xFF\xC3!", "b"));
  EXPECT_THAT(split("\xE2\x82"), ElementsAre("\xE2\x82"));
}

// The pattern, read off word by word over class letters: L letter, N number, S blank, O other.
struct Symbol {
  char kind;
  std::string bytes;
};

size_t count_while(const std::vector<Symbol>& text, size_t at, auto&& test) {
  size_t n = 0;
  while (at + n < text.size() && test(text[at + n])) ++n;
  return n;
}

size_t naive_symbols(const std::vector<Symbol>& text, size_t at) {
  for (const std::string_view end : {"s", "t", "re", "ve", "m", "ll", "d"}) {
    if (text[at].bytes != "'" || at + end.size() >= text.size()) continue;
    bool match = true;
    for (size_t i = 0; i < end.size(); ++i) {
      match = match && text[at + 1 + i].bytes == std::string(1, end[i]);
    }
    if (match) return 1 + end.size();
  }
  const size_t blank = text[at].bytes == " " ? 1 : 0;
  for (const char kind : {'L', 'N', 'O'}) {
    const auto is_kind = [kind](const Symbol& s) { return s.kind == kind; };
    const size_t with = count_while(text, at + blank, is_kind);
    if (with > 0) return blank + with;
    const size_t without = count_while(text, at, is_kind);
    if (without > 0) return without;
  }
  const size_t blanks = count_while(text, at, [](const Symbol& s) { return s.kind == 'S'; });
  for (size_t n = blanks; n > 0; --n) {
    if (at + n == text.size() || text[at + n].kind == 'S') return n;
  }
  return blanks;
}

TEST(Gpt2SplitterTest, EqualsThePatternOnRandomText) {
  const std::vector<Symbol> alphabet = {
      {'L', "s"}, {'L', "r"},      {'L', "e"},  {'L', "l"},      {'L', "X"},   {'L', "\u00E9"},
      {'N', "7"}, {'N', "\u00BD"}, {'O', "'"},  {'O', "'"},      {'O', "-"},   {'O', "\u0301"},
      {'S', " "}, {'S', " "},      {'S', "\n"}, {'S', "\u00A0"}, {'O', "\xFF"}};
  base::SeededRandom random(testing::test_seed());
  for (int round = 0; round < 20000; ++round) {
    std::vector<Symbol> symbols;
    std::string text;
    for (uint64_t n = 1 + random.uniform_int(12); n > 0; --n) {
      symbols.push_back(alphabet[random.uniform_int(alphabet.size())]);
      text += symbols.back().bytes;
    }
    std::vector<std::string> expected;
    for (size_t at = 0; at < symbols.size();) {
      const size_t n = naive_symbols(symbols, at);
      expected.emplace_back();
      for (size_t i = 0; i < n; ++i) expected.back() += symbols[at + i].bytes;
      at += n;
    }
    ASSERT_EQ(split(text), expected) << "round " << round;
    // A safe cut may not change the pieces.
    const size_t cut = gpt2_safe_cut(text);
    std::vector<std::string> halves = split(text.substr(0, cut));
    for (std::string& piece : split(text.substr(cut))) halves.push_back(std::move(piece));
    ASSERT_EQ(halves, expected) << "round " << round << ", cut " << cut;
  }
}

TEST(Gpt2SplitterTest, SafeCutNeedsABlankAfterAVisibleCharacter) {
  EXPECT_EQ(gpt2_safe_cut("hello world again"), 11u);
  EXPECT_EQ(gpt2_safe_cut("hello\n\n"), 5u);
  EXPECT_EQ(gpt2_safe_cut("hello"), 0u);
  EXPECT_EQ(gpt2_safe_cut("  hello"), 0u);
  EXPECT_EQ(gpt2_safe_cut(""), 0u);
  EXPECT_EQ(gpt2_safe_cut("a\u00A0 b"), 0u);
}

}  // namespace
}  // namespace perdure::runtime::data
