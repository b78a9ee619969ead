#include "runtime/data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/codec.h"
#include "base/hash.h"

namespace perdure::runtime::data {
namespace {

using base::ByteSpan;
using base::Result;
using base::Status;

static_assert(std::endian::native == std::endian::little, "mapped tokens are little-endian");

constexpr std::string_view kMagic = "PERDTOK\n";
constexpr size_t kHashOffset = kTokenFileHeaderBytes - 8;

// The fields between magic and hash, whose bytes are known to be good.
Result<TokenFileInfo> decode_fields(ByteSpan header) {
  base::Decoder in(header.subspan(kMagic.size() + 4));
  TokenFileInfo info;
  ASSIGN_OR_RETURN(const uint32_t header_bytes, in.u32());
  ASSIGN_OR_RETURN(info.token_bytes, in.u32());
  ASSIGN_OR_RETURN(info.vocabulary, in.u32());
  ASSIGN_OR_RETURN(info.token_count, in.u64());
  ASSIGN_OR_RETURN(info.token_max, in.u32());
  ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t unused, in.u32());
  ASSIGN_OR_RETURN(info.payload_hash, in.u64());
  ASSIGN_OR_RETURN(const ByteSpan name, in.raw(kTokenizerNameBytesMax));
  const std::string_view text = base::as_text(name);
  info.tokenizer = text.substr(0, text.find('\0'));
  if (header_bytes != kTokenFileHeaderBytes) return base::data_loss("wrong header size");
  if (info.token_bytes != 2 && info.token_bytes != 4) return base::data_loss("wrong token width");
  if (info.token_count > 0 && info.token_max >= info.vocabulary) {
    return base::data_loss("largest token is not in the vocabulary");
  }
  return info;
}

TokenId widest(std::span<const TokenId> tokens) {
  return tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
}

}  // namespace

std::vector<std::byte> encode_token_file_header(const TokenFileInfo& info) {
  CHECK_LE(info.tokenizer.size(), kTokenizerNameBytesMax);
  CHECK(info.token_bytes == 2 || info.token_bytes == 4);
  base::Encoder out;
  out.raw(base::as_byte_span(kMagic));
  out.u32(kTokenFileVersion);
  out.u32(kTokenFileHeaderBytes);
  out.u32(info.token_bytes);
  out.u32(info.vocabulary);
  out.u64(info.token_count);
  out.u32(info.token_max);
  out.u32(0);
  out.u64(info.payload_hash);
  std::string name = info.tokenizer;
  name.resize(kTokenizerNameBytesMax, '\0');
  out.raw(base::as_byte_span(name));
  while (out.bytes().size() < kHashOffset) out.u8(0);
  out.u64(base::hash64(out.bytes()));
  CHECK_EQ(out.bytes().size(), kTokenFileHeaderBytes);
  return out.take();
}

Result<TokenFileInfo> decode_token_file_header(ByteSpan header, uint64_t file_bytes,
                                               const std::string& name) {
  const std::string_view start =
      base::as_text(header.first(std::min(header.size(), kMagic.size())));
  if (start != kMagic.substr(0, start.size()) || start.empty()) {
    return base::invalid_argument(name +
                                  ": is not a token file; make one with `perdure data prepare`");
  }
  if (header.size() < kTokenFileHeaderBytes) {
    return base::data_loss(name + ": is cut off inside its header");
  }
  header = header.first(kTokenFileHeaderBytes);
  base::Decoder version_in(header.subspan(kMagic.size(), 4));
  ASSIGN_OR_RETURN(const uint32_t version, version_in.u32());
  base::Decoder hash_in(header.subspan(kHashOffset));
  ASSIGN_OR_RETURN(const uint64_t hash, hash_in.u64());
  if (version != kTokenFileVersion) {
    return base::invalid_argument(name + ": has token file version " + std::to_string(version) +
                                  ", this program reads version " +
                                  std::to_string(kTokenFileVersion));
  }
  if (hash != base::hash64(header.first(kHashOffset))) {
    return base::data_loss(name + ": header is damaged (checksum differs)");
  }
  Result<TokenFileInfo> info = decode_fields(header);
  if (!info.is_ok()) return info.status().annotate(name);
  const uint64_t payload_bytes_max = UINT64_MAX - kTokenFileHeaderBytes;
  if (info->token_count > payload_bytes_max / info->token_bytes ||
      file_bytes != kTokenFileHeaderBytes + info->token_count * info->token_bytes) {
    return base::data_loss(name + ": has " + std::to_string(file_bytes) + " bytes, but " +
                           std::to_string(info->token_count) + " tokens of " +
                           std::to_string(info->token_bytes) + " bytes need another size");
  }
  return info;
}

Result<TokenFile> TokenFile::open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  ASSIGN_OR_RETURN(TokenFileInfo info,
                   decode_token_file_header(mapped.bytes(), mapped.bytes().size(), path));
  TokenFile file(path, std::move(info));
  file.mapped_ = std::move(mapped);
  return file;
}

TokenFile TokenFile::in_memory(Contents contents) {
  TokenFileInfo info;
  info.tokenizer = std::move(contents.tokenizer);
  info.vocabulary = contents.vocabulary;
  info.token_bytes = contents.vocabulary <= 65536 ? 2 : 4;
  info.token_count = contents.tokens.size();
  info.token_max = widest(contents.tokens);
  CHECK(contents.tokens.empty() || info.token_max < info.vocabulary);
  std::vector<std::byte> memory;
  append_encoded(contents.tokens, info.token_bytes, memory);
  info.payload_hash = base::hash64(memory);
  TokenFile file(std::move(contents.name), std::move(info));
  file.memory_ = std::move(memory);
  return file;
}

ByteSpan TokenFile::payload() const {
  return mapped_ ? mapped_->bytes().subspan(kTokenFileHeaderBytes) : ByteSpan(memory_);
}

void TokenFile::read(uint64_t first, std::span<int32_t> out) const {
  CHECK_LE(first, info_.token_count);
  CHECK_LE(out.size(), info_.token_count - first);
  const std::byte* from = payload().data() + first * info_.token_bytes;
  if (info_.token_bytes == 4) {
    std::memcpy(out.data(), from, out.size() * 4);
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t token;
    std::memcpy(&token, from + 2 * i, 2);
    out[i] = token;
  }
}

Status TokenFile::verify() const {
  if (base::hash64(payload()) != info_.payload_hash) {
    return base::data_loss(name_ + ": tokens are damaged (checksum differs)");
  }
  TokenId most = 0;
  std::vector<int32_t> piece(4096);
  for (uint64_t first = 0; first < info_.token_count; first += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), info_.token_count - first));
    read(first, piece);
    for (const int32_t token : piece) most = std::max(most, static_cast<TokenId>(token));
  }
  if (most != info_.token_max) {
    return base::data_loss(name_ + ": largest token is " + std::to_string(most) +
                           ", the header says " + std::to_string(info_.token_max));
  }
  return Status::ok();
}

void append_encoded(std::span<const TokenId> tokens, uint32_t token_bytes,
                    std::vector<std::byte>& out) {
  const size_t at = out.size();
  out.resize(at + tokens.size() * token_bytes);
  if (tokens.empty()) return;
  if (token_bytes == 4) {
    std::memcpy(out.data() + at, tokens.data(), tokens.size() * 4);
    return;
  }
  CHECK_EQ(token_bytes, 2u);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint16_t narrow = static_cast<uint16_t>(tokens[i]);
    std::memcpy(out.data() + at + 2 * i, &narrow, 2);
  }
}

}  // namespace perdure::runtime::data
