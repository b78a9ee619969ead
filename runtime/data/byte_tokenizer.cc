#include "runtime/data/byte_tokenizer.h"

namespace perdure::runtime::data {

void ByteTokenizer::encode(std::string_view text, std::vector<TokenId>& tokens) {
  tokens.reserve(tokens.size() + text.size());
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
}

base::Status ByteTokenizer::decode(std::span<const TokenId> tokens, std::string& text) const {
  for (const TokenId token : tokens) {
    if (token >= kVocabulary) {
      return base::invalid_argument("token " + std::to_string(token) +
                                    " is not a byte: the vocabulary has 256");
    }
    text.push_back(static_cast<char>(token));
  }
  return base::Status::ok();
}

}  // namespace perdure::runtime::data
