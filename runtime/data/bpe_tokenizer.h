#pragma once
// BpeTokenizer: byte-level byte-pair encoding as GPT-2 does it, from the two files published with
// it.

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/data/bpe_merger.h"
#include "runtime/data/tokenizer.h"

namespace perdure::runtime::data {

// The two files, read and cross-checked.
struct BpeVocabulary {
  std::vector<std::string> bytes_of_token;  // the bytes that each token stands for
  std::array<TokenId, 256> token_of_byte{};
  std::vector<BpeMerge> merges;
};

struct BpeFiles {
  std::string_view merges;  // contents of vocab.bpe: "#version" line, then "left right" lines
  std::string merges_name;  // for messages
  std::string_view table;   // contents of encoder.json: {"token": id, ...}
  std::string table_name;
};

// kInvalidArgument names the file and the line or token: not JSON, ids not 0..n-1, a byte without a
// token, a merge of tokens that the table does not have.
base::Result<BpeVocabulary> parse_bpe_vocabulary(const BpeFiles& files);

class BpeTokenizer final : public Tokenizer {
 public:
  explicit BpeTokenizer(BpeVocabulary vocabulary);
  std::string_view name() const override { return "gpt2"; }
  uint32_t vocabulary() const override {
    return static_cast<uint32_t>(vocabulary_.bytes_of_token.size());
  }
  void encode(std::string_view text, std::vector<TokenId>& tokens) override;
  size_t safe_cut(std::string_view text) const override;
  base::Status decode(std::span<const TokenId> tokens, std::string& text) const override;

 private:
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  // Pieces repeat: most are found here. Dropped as a whole when full, so memory stays bounded.
  static constexpr size_t kCachedPiecesMax = 1 << 17;
  static constexpr size_t kCachedPieceBytesMax = 64;

  void encode_piece(std::string_view piece, std::vector<TokenId>& tokens);

  BpeVocabulary vocabulary_;
  BpeMerger merger_;
  std::unordered_map<std::string, std::vector<TokenId>, TextHash, std::equal_to<>> cache_;
  std::vector<TokenId> piece_tokens_;
};

}  // namespace perdure::runtime::data
