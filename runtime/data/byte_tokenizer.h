#pragma once
// ByteTokenizer: every byte is a token. Needs no files, makes no mistakes; right for small models.

#include "runtime/data/tokenizer.h"

namespace perdure::runtime::data {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr uint32_t kVocabulary = 256;
  std::string_view name() const override { return "byte"; }
  uint32_t vocabulary() const override { return kVocabulary; }
  void encode(std::string_view text, std::vector<TokenId>& tokens) override;
  size_t safe_cut(std::string_view text) const override { return text.size(); }
  base::Status decode(std::span<const TokenId> tokens, std::string& text) const override;
};

}  // namespace perdure::runtime::data
