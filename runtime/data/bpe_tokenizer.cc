#include "runtime/data/bpe_tokenizer.h"

#include <utf8proc.h>
#include <nlohmann/json.hpp>

#include <optional>

#include "runtime/data/gpt2_splitter.h"

namespace perdure::runtime::data {
namespace {

using base::Result;
using base::Status;

constexpr TokenId kNoToken = UINT32_MAX;

// The files spell bytes as visible characters: printable Latin-1 bytes stand for themselves, the
// others are numbered from U+0100 on in ascending order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    int32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable =
          (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
      byte_of_code_[printable ? b : next++] = static_cast<unsigned char>(b);
    }
  }

  // The bytes of a token as the files spell it; none when a character stands for no byte.
  std::optional<std::string> bytes(std::string_view spelled) const {
    std::string out;
    const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(spelled.data());
    utf8proc_ssize_t left = static_cast<utf8proc_ssize_t>(spelled.size());
    while (left > 0) {
      utf8proc_int32_t code = -1;
      const utf8proc_ssize_t used = utf8proc_iterate(at, left, &code);
      const auto found = used < 1 ? byte_of_code_.end() : byte_of_code_.find(code);
      if (found == byte_of_code_.end()) return std::nullopt;
      out.push_back(static_cast<char>(found->second));
      at += used;
      left -= used;
    }
    return out;
  }

 private:
  std::unordered_map<int32_t, unsigned char> byte_of_code_;
};

using TokenMap = std::unordered_map<std::string, TokenId>;

Status bad(const std::string& file, const std::string& what) {
  return base::invalid_argument(file + ": " + what);
}

Status parse_table(const BpeFiles& files, const ByteAlphabet& alphabet, BpeVocabulary& vocabulary,
                   TokenMap& ids) {
  const nlohmann::json table = nlohmann::json::parse(files.table, nullptr, false);
  if (table.is_discarded()) return bad(files.table_name, "is not JSON");
  if (!table.is_object()) return bad(files.table_name, "is not a JSON object of token ids");
  const size_t count = table.size();
  std::vector<bool> seen(count, false);
  vocabulary.bytes_of_token.assign(count, "");
  vocabulary.token_of_byte.fill(kNoToken);
  for (const auto& [spelled, id] : table.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= count || seen[id.get<uint64_t>()]) {
      return bad(files.table_name, "token \"" + spelled + "\" has the id " + id.dump() +
                                       "; ids must be 0 to " + std::to_string(count - 1) +
                                       ", each once");
    }
    const TokenId token = id.get<TokenId>();
    std::optional<std::string> bytes = alphabet.bytes(spelled);
    if (!bytes || bytes->empty()) {
      return bad(files.table_name, "token \"" + spelled + "\" does not spell bytes");
    }
    seen[token] = true;
    if (bytes->size() == 1) {
      vocabulary.token_of_byte[static_cast<unsigned char>(bytes->front())] = token;
    }
    ids.emplace(*bytes, token);
    vocabulary.bytes_of_token[token] = std::move(*bytes);
  }
  for (size_t b = 0; b < 256; ++b) {
    if (vocabulary.token_of_byte[b] == kNoToken) {
      return bad(files.table_name, "no token for the byte " + std::to_string(b));
    }
  }
  return Status::ok();
}

// One "left right" line.
Result<BpeMerge> parse_merge(std::string_view line, const ByteAlphabet& alphabet,
                             const TokenMap& ids) {
  const size_t blank = line.find(' ');
  if (blank == std::string_view::npos || line.find(' ', blank + 1) != std::string_view::npos) {
    return base::invalid_argument("is not two tokens");
  }
  const std::optional<std::string> left = alphabet.bytes(line.substr(0, blank));
  const std::optional<std::string> right = alphabet.bytes(line.substr(blank + 1));
  if (!left || !right) return base::invalid_argument("does not spell bytes");
  const auto left_id = ids.find(*left);
  const auto right_id = ids.find(*right);
  const auto merged_id = ids.find(*left + *right);
  if (left_id == ids.end() || right_id == ids.end() || merged_id == ids.end()) {
    return base::invalid_argument("merges tokens that the token table does not have");
  }
  return BpeMerge{left_id->second, right_id->second, merged_id->second};
}

Status parse_merges(const BpeFiles& files, const ByteAlphabet& alphabet, const TokenMap& ids,
                    BpeVocabulary& vocabulary) {
  size_t line_number = 0;
  for (size_t at = 0; at < files.merges.size();) {
    const size_t end = std::min(files.merges.find('\n', at), files.merges.size());
    std::string_view line = files.merges.substr(at, end - at);
    at = end + 1;
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    Result<BpeMerge> merge = parse_merge(line, alphabet, ids);
    if (!merge.is_ok()) {
      return merge.status().annotate(files.merges_name + ":" + std::to_string(line_number));
    }
    vocabulary.merges.push_back(*merge);
  }
  if (vocabulary.merges.empty()) return bad(files.merges_name, "has no merges");
  return Status::ok();
}

}  // namespace

Result<BpeVocabulary> parse_bpe_vocabulary(const BpeFiles& files) {
  const ByteAlphabet alphabet;
  BpeVocabulary vocabulary;
  TokenMap ids;
  RETURN_IF_ERROR(parse_table(files, alphabet, vocabulary, ids));
  RETURN_IF_ERROR(parse_merges(files, alphabet, ids, vocabulary));
  return vocabulary;
}

BpeTokenizer::BpeTokenizer(BpeVocabulary vocabulary)
    : vocabulary_(std::move(vocabulary)), merger_(vocabulary_.merges) {}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& tokens) {
  while (!text.empty()) {
    const size_t bytes = gpt2_piece_bytes(text);
    encode_piece(text.substr(0, bytes), tokens);
    text.remove_prefix(bytes);
  }
}

void BpeTokenizer::encode_piece(std::string_view piece, std::vector<TokenId>& tokens) {
  const auto cached = cache_.find(piece);
  if (cached != cache_.end()) {
    tokens.insert(tokens.end(), cached->second.begin(), cached->second.end());
    return;
  }
  piece_tokens_.clear();
  for (const char c : piece) {
    piece_tokens_.push_back(vocabulary_.token_of_byte[static_cast<unsigned char>(c)]);
  }
  const size_t first = tokens.size();
  merger_.merge(piece_tokens_, tokens);
  if (piece.size() > kCachedPieceBytesMax) return;
  if (cache_.size() >= kCachedPiecesMax) cache_.clear();
  cache_.emplace(
      piece, std::vector<TokenId>(tokens.begin() + static_cast<ptrdiff_t>(first), tokens.end()));
}

size_t BpeTokenizer::safe_cut(std::string_view text) const { return gpt2_safe_cut(text); }

Status BpeTokenizer::decode(std::span<const TokenId> tokens, std::string& text) const {
  for (const TokenId token : tokens) {
    if (token >= vocabulary_.bytes_of_token.size()) {
      return base::invalid_argument("token " + std::to_string(token) +
                                    " is not in the vocabulary of " +
                                    std::to_string(vocabulary_.bytes_of_token.size()));
    }
    text += vocabulary_.bytes_of_token[token];
  }
  return Status::ok();
}

}  // namespace perdure::runtime::data
