#include "runtime/data/tokenizer.h"

#include "runtime/data/bpe_tokenizer.h"
#include "runtime/data/byte_tokenizer.h"

namespace perdure::runtime::data {
namespace {

using base::Result;
using base::operator""_MiB;

Result<std::string> read_text(base::FileSystem& files, const std::string& path, const char* flag) {
  if (path.empty()) {
    return base::invalid_argument(std::string("the gpt2 tokenizer needs --") + flag);
  }
  ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, base::read_file(files, path, 64_MiB));
  return std::string(base::as_text(bytes));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(base::FileSystem& files,
                                                  const TokenizerSpec& spec) {
  if (spec.kind == TokenizerKind::kByte) {
    return std::unique_ptr<Tokenizer>(std::make_unique<ByteTokenizer>());
  }
  ASSIGN_OR_RETURN(const std::string merges, read_text(files, spec.vocab_bpe, "vocab-bpe"));
  ASSIGN_OR_RETURN(const std::string table, read_text(files, spec.encoder_json, "encoder-json"));
  ASSIGN_OR_RETURN(BpeVocabulary vocabulary,
                   parse_bpe_vocabulary({.merges = merges,
                                         .merges_name = spec.vocab_bpe,
                                         .table = table,
                                         .table_name = spec.encoder_json}));
  return std::unique_ptr<Tokenizer>(std::make_unique<BpeTokenizer>(std::move(vocabulary)));
}

}  // namespace perdure::runtime::data
