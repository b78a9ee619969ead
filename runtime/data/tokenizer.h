#pragma once
// Tokenizer: text to token ids and back.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"

namespace perdure::runtime::data {

using TokenId = uint32_t;

// One thread at a time (encoding may fill a cache). Any bytes can be encoded, and decoding gives
// the same bytes back; text need not be valid UTF-8.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string_view name() const = 0;  // "byte", "gpt2"
  // Every token is below this.
  virtual uint32_t vocabulary() const = 0;

  // Appends the tokens of `text` to `tokens`.
  virtual void encode(std::string_view text, std::vector<TokenId>& tokens) = 0;

  // The largest n such that encoding text[0, n) and then the rest, whatever follows it, gives the
  // tokens of the whole. 0 when there is no such place. Lets a large corpus be encoded in pieces.
  virtual size_t safe_cut(std::string_view text) const = 0;

  // kInvalidArgument: a token that is not in the vocabulary. Then `text` holds what came before it.
  virtual base::Status decode(std::span<const TokenId> tokens, std::string& text) const = 0;
};

enum class TokenizerKind : uint8_t { kByte, kGpt2 };

struct TokenizerSpec {
  TokenizerKind kind = TokenizerKind::kByte;
  std::string vocab_bpe;     // kGpt2: path of the merges, as published with the model
  std::string encoder_json;  // kGpt2: path of the token table
};

// kInvalidArgument: a path is missing or a file is not what it should be. kNotFound: no such file.
base::Result<std::unique_ptr<Tokenizer>> make_tokenizer(base::FileSystem& files,
                                                        const TokenizerSpec& spec);

}  // namespace perdure::runtime::data
