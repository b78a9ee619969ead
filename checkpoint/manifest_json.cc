#include "checkpoint/manifest_json.h"

#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

constexpr size_t kHexDigits = 16;

std::string hex(uint64_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(kHexDigits, '0');
  for (size_t i = kHexDigits; i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

template <typename Range, typename Append>
void append_list(std::string& json, const Range& values, const Append& append) {
  json += '[';
  bool is_first = true;
  for (const auto& value : values) {
    if (!is_first) json += ", ";
    is_first = false;
    append(value);
  }
  json += ']';
}

template <typename Range>
void append_numbers(std::string& json, const Range& values) {
  append_list(json, values, [&](auto value) { json += std::to_string(value); });
}

void append_file(std::string& json, const FileRecord& file) {
  json += "{\"name\": ";
  append_json_string(json, file.name);
  json += ", \"bytes\": " + std::to_string(file.bytes);
  json += ", \"hash\": \"" + hex(file.hash) + "\", \"nodes\": ";
  append_numbers(json, file.nodes);
  json += '}';
}

void append_chunk(std::string& json, const ChunkRecord& chunk) {
  json += "{\"box_offset\": ";
  append_numbers(json, chunk.box.offset);
  json += ", \"box_size\": ";
  append_numbers(json, chunk.box.size);
  json += ", \"file\": " + std::to_string(chunk.file);
  json += ", \"offset\": " + std::to_string(chunk.offset);
  json += ", \"bytes\": " + std::to_string(chunk.bytes) + ", \"pieces\": ";
  append_list(json, chunk.piece_hashes, [&](uint64_t hash) { json += '"' + hex(hash) + '"'; });
  json += '}';
}

// Each element on its own line, so that a person can look for one and `diff` shows what differs.
template <typename Range, typename Append>
void append_lines(std::string& json, std::string_view indent, const Range& values,
                  const Append& append) {
  json += '[';
  bool is_first = true;
  for (const auto& value : values) {
    json += is_first ? "\n" : ",\n";
    is_first = false;
    json += indent;
    append(json, value);
  }
  json += ']';
}

void append_tensor(std::string& json, const TensorRecord& tensor) {
  json += "{\"name\": ";
  append_json_string(json, tensor.name);
  json += ", \"type\": \"" + std::string(to_string(tensor.type)) + "\", \"shape\": ";
  append_numbers(json, tensor.shape);
  if (!tensor.alias_of.empty()) {
    json += ", \"alias_of\": ";
    append_json_string(json, tensor.alias_of);
  } else {
    json += ", \"chunks\": ";
    append_lines(json, "    ", tensor.chunks, append_chunk);
  }
  json += '}';
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  std::string json = "{\n\"step\": " + std::to_string(manifest.step);
  json += ",\n\"epoch\": " + std::to_string(manifest.epoch);
  json += ",\n\"attempt\": \"" + hex(manifest.attempt) + "\",\n\"model\": ";
  append_json_string(json, manifest.model);
  json += ",\n\"layout\": ";
  append_json_string(json, manifest.layout);
  json += ",\n\"counters\": {";
  bool is_first = true;
  for (const auto& [name, value] : manifest.counters) {
    json += is_first ? "\n  " : ",\n  ";
    is_first = false;
    append_json_string(json, name);
    json += ": " + std::to_string(value);
  }
  json += "},\n\"files\": ";
  append_lines(json, "  ", manifest.files, append_file);
  json += ",\n\"tensors\": ";
  append_lines(json, "  ", manifest.tensors, append_tensor);
  return json + "\n}\n";
}

}  // namespace perdure::checkpoint
