#pragma once
// Manifests for tests.

#include <string>
#include <string_view>

#include "base/random.h"
#include "checkpoint/manifest.h"

namespace perdure::testing {

// A chunk that holds `box`, with made-up hashes.
inline checkpoint::ChunkRecord made_up_chunk(checkpoint::Box box, uint32_t file, uint64_t offset,
                                             uint64_t bytes) {
  checkpoint::ChunkRecord chunk = {
      .box = std::move(box), .file = file, .offset = offset, .bytes = bytes};
  const uint64_t pieces = (bytes + checkpoint::kPieceBytes - 1) / checkpoint::kPieceBytes;
  for (uint64_t i = 0; i < pieces; ++i) {
    chunk.piece_hashes.push_back(base::mix64(offset + i + 1) | uint64_t{1} << 63);
  }
  return chunk;
}

// Two files; a tensor in two chunks, a tied one, a scalar, one without elements, one of several
// pieces; numbers beyond 2^53 wherever 64 bits are allowed.
inline checkpoint::Manifest sample_manifest() {
  using checkpoint::ElementType;
  checkpoint::Manifest manifest = {.step = (uint64_t{1} << 60) + 1,
                                   .epoch = 7,
                                   .attempt = 0xfedcba9876543210,
                                   .model = "llama 4 x 128, \"quoted\" \xC3\xA4",
                                   .layout = "2 pipelines x 2 stages"};
  manifest.counters = {{"applied_steps", 118}, {"samples_consumed", ~uint64_t{0}}};
  manifest.files = {
      {.name = "rank-0000.safetensors", .bytes = 4096 + 64 + 8, .hash = 0x8000000000000001},
      {.name = "rank-0001.safetensors", .bytes = (9 << 20) + 64, .hash = 1, .nodes = {3, 1}}};
  manifest.tensors = {
      {.name = "a.weight",
       .type = ElementType::kBF16,
       .shape = {8, 8},
       .chunks = {made_up_chunk({{0, 0}, {4, 8}}, 0, 4096, 64),
                  made_up_chunk({{4, 0}, {4, 8}}, 1, 0, 64)}},
      {.name = "b.none",
       .type = ElementType::kF32,
       .shape = {0, 5},
       .chunks = {made_up_chunk({{0, 0}, {0, 5}}, 0, 4096, 0)}},
      {.name = "c.scalar",
       .type = ElementType::kI64,
       .chunks = {made_up_chunk({}, 0, 4096 + 64, 8)}},
      {.name = "d.large",
       .type = ElementType::kU8,
       .shape = {9 << 20},
       .chunks = {made_up_chunk({{0}, {9 << 20}}, 1, 64, 9 << 20)}},
      {.name = "e.tied", .type = ElementType::kBF16, .shape = {8, 8}, .alias_of = "a.weight"}};
  return manifest;
}

inline std::string manifest_text(const checkpoint::Manifest& manifest) {
  return std::string(base::as_text(checkpoint::encode_manifest(manifest)));
}

// Any text, with a last line that fits it.
inline std::string with_last_line(std::string text, uint32_t version = 1) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  text += "perdure-manifest " + std::to_string(version) + " " + std::to_string(text.size()) + " ";
  const uint64_t hash = base::hash64(base::as_byte_span(text));
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[hash >> shift & 15];
  return text + "\n";
}

inline std::string without_last_line(const std::string& text) {
  return text.substr(0, text.rfind('\n', text.size() - 2) + 1);
}

inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  CHECK(at != std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

}  // namespace perdure::testing
