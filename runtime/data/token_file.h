#pragma once
// TokenFile: a corpus as an array of token ids. Format: docs/formats/token_file.md.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/data/token_file_mmap.h"
#include "runtime/data/tokenizer.h"

namespace perdure::runtime::data {

inline constexpr uint32_t kTokenFileVersion = 1;
inline constexpr size_t kTokenFileHeaderBytes = 128;
inline constexpr size_t kTokenizerNameBytesMax = 64;

// What the header says.
struct TokenFileInfo {
  std::string tokenizer;
  uint32_t vocabulary = 0;   // of the tokenizer
  uint32_t token_bytes = 2;  // 2 while the vocabulary fits, else 4
  uint64_t token_count = 0;
  TokenId token_max = 0;  // largest token in the file; 0 when it is empty
  uint64_t payload_hash = 0;
};

// 128 bytes, ready to be written.
std::vector<std::byte> encode_token_file_header(const TokenFileInfo& info);

// `file_bytes` is the size of the whole file, `name` leads every message. kInvalidArgument: not a
// token file, or of a version that this program does not know. kDataLoss: damaged or cut off.
base::Result<TokenFileInfo> decode_token_file_header(base::ByteSpan header, uint64_t file_bytes,
                                                     const std::string& name);

// A mapped file or an array in memory; immutable. Any number of threads.
class TokenFile {
 public:
  // Checks header and size, not the payload. Errors as decode_token_file_header and
  // MappedFile::open.
  static base::Result<TokenFile> open(const std::string& path);

  // A corpus that never was a file. CHECKs that every token is below the vocabulary.
  struct Contents {
    std::string name;  // for messages
    std::string tokenizer;
    uint32_t vocabulary = 0;
    std::vector<TokenId> tokens;
  };
  static TokenFile in_memory(Contents contents);

  const TokenFileInfo& info() const { return info_; }
  const std::string& name() const { return name_; }

  // Copies tokens [first, first + out.size()); CHECKs that they are there.
  void read(uint64_t first, std::span<int32_t> out) const;

  // Reads everything and compares it with the header: kDataLoss when it differs.
  base::Status verify() const;

 private:
  TokenFile(std::string name, TokenFileInfo info)
      : name_(std::move(name)), info_(std::move(info)) {}
  base::ByteSpan payload() const;

  std::string name_;
  TokenFileInfo info_;
  std::optional<MappedFile> mapped_;  // else memory_
  std::vector<std::byte> memory_;
};

// Payload bytes of tokens in the file's width and byte order.
void append_encoded(std::span<const TokenId> tokens, uint32_t token_bytes,
                    std::vector<std::byte>& out);

}  // namespace perdure::runtime::data
