#include "checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "checkpoint/manifest_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

// The last line: "perdure-manifest <version> <bytes before it> <XXH3-64 of all before it>". The
// hash covers the line's own beginning too, and the line has this form in every version.
constexpr std::string_view kMark = "perdure-manifest ";
constexpr size_t kLastLineBytesMax = 80;

std::string hex(uint64_t value) {
  std::string text(16, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = "0123456789abcdef"[value & 15];
  return text;
}

std::string last_line_without_hash(uint32_t version, uint64_t json_bytes) {
  return std::string(kMark) + std::to_string(version) + " " + std::to_string(json_bytes) + " ";
}

uint64_t hash_of(std::string_view json, std::string_view line) {
  base::Hasher hasher;
  hasher.update(base::as_byte_span(json));
  hasher.update(base::as_byte_span(line));
  return hasher.digest64();
}

struct Frame {
  std::string_view json;
  uint64_t version = 0;
};

// Digits as std::to_string writes them; the rest of the line after one space.
std::optional<uint64_t> take_number(std::string_view& line) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (error != std::errc()) return std::nullopt;
  line.remove_prefix(static_cast<size_t>(end - line.data()));
  if (!line.starts_with(' ')) return std::nullopt;
  line.remove_prefix(1);
  return value;
}

base::Result<Frame> open_frame(std::string_view text) {
  if (text.size() > kManifestBytesMax) {
    return base::data_loss("has " + std::to_string(text.size()) + " bytes, at most " +
                           std::to_string(kManifestBytesMax) + " are allowed");
  }
  const auto cut = [&](const std::string& what) {
    return base::data_loss("is cut or not a manifest: " + what + " (it has " +
                           std::to_string(text.size()) + " bytes)");
  };
  if (!text.ends_with('\n')) return cut("the last line has no end");
  const std::string_view tail = text.substr(text.size() - std::min(text.size(), kLastLineBytesMax));
  const size_t line_break = tail.rfind('\n', tail.size() - 2);
  if (tail.size() < 2 || line_break == std::string_view::npos) {
    return cut("the last line is not 'perdure-manifest ...'");
  }
  const std::string_view line = tail.substr(line_break + 1);
  if (!line.starts_with(kMark)) return cut("the last line is not 'perdure-manifest ...'");
  const std::string_view json = text.substr(0, text.size() - line.size());

  std::string_view rest = line.substr(kMark.size());
  const std::optional<uint64_t> version = take_number(rest);
  const std::optional<uint64_t> json_bytes = version ? take_number(rest) : std::nullopt;
  if (!json_bytes) return cut("the last line has no version or no length");
  if (*json_bytes != json.size()) {
    return cut("the last line says " + std::to_string(*json_bytes) + " bytes are before it, " +
               std::to_string(json.size()) + " are");
  }
  const std::string hash = hex(hash_of(json, line.substr(0, line.size() - rest.size())));
  if (rest != hash + "\n") {
    return base::data_loss("was changed: its bytes have the hash " + hash +
                           ", its last line says another; take another checkpoint");
  }
  return Frame{.json = json, .version = *version};
}

base::Result<Manifest> parse(std::string_view text) {
  ASSIGN_OR_RETURN(const Frame frame, open_frame(text));
  if (frame.version > kManifestVersion) {
    return base::unimplemented("is of version " + std::to_string(frame.version) +
                               ", this program reads up to " + std::to_string(kManifestVersion) +
                               ": use the program that wrote it, or a newer one");
  }
  if (frame.version == 0) return base::data_loss("is of version 0, which there never was");
  ASSIGN_OR_RETURN(Manifest manifest, manifest_from_json(frame.json));
  RETURN_IF_ERROR(check_manifest(manifest));
  return manifest;
}

}  // namespace

const TensorRecord* Manifest::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorRecord& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::vector<std::byte> encode_manifest(const Manifest& manifest) {
  std::string text = manifest_to_json(manifest);
  const std::string line = last_line_without_hash(manifest.version, text.size());
  text += line + hex(hash_of(text, line)) + "\n";
  const base::ByteSpan bytes = base::as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

base::Result<Manifest> parse_manifest(base::ByteSpan bytes, std::string_view name) {
  base::Result<Manifest> manifest = parse(base::as_text(bytes));
  if (manifest.is_ok()) return manifest;
  return manifest.status().annotate(name);
}

std::vector<uint64_t> hash_pieces(base::ByteSpan chunk) {
  std::vector<uint64_t> hashes;
  while (!chunk.empty()) {
    const size_t bytes = std::min<size_t>(chunk.size(), kPieceBytes);
    hashes.push_back(base::hash64(chunk.first(bytes)));
    chunk = chunk.subspan(bytes);
  }
  return hashes;
}

uint64_t hash_file(base::ByteSpan header, std::span<const uint64_t> piece_hashes) {
  base::Hasher hasher;
  const auto update = [&](uint64_t word) {
    std::array<std::byte, 8> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(word >> (8 * i));
    hasher.update(bytes);
  };
  update(base::hash64(header));
  for (const uint64_t hash : piece_hashes) update(hash);
  return hasher.digest64();
}

}  // namespace perdure::checkpoint
