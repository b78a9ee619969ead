#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "checkpoint/manifest.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

constexpr uint64_t kBytesMax = std::numeric_limits<int64_t>::max();
constexpr size_t kNameBytesMax = 200;

std::string lower_case(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

Status check_text(std::string_view text, std::string_view what) {
  if (is_utf8(text) && text.find('\0') == std::string_view::npos) return Status::ok();
  return base::data_loss(std::string(what) + " " + in_quotes(text) +
                         " is not UTF-8 or has a zero byte");
}

Status check_head(const Manifest& manifest) {
  if (manifest.version != kManifestVersion) {
    return base::data_loss("version " + std::to_string(manifest.version) + ", not " +
                           std::to_string(kManifestVersion));
  }
  RETURN_IF_ERROR(check_text(manifest.model, "model"));
  RETURN_IF_ERROR(check_text(manifest.layout, "layout"));
  if (manifest.counters.size() > kManifestCountersMax) {
    return base::data_loss(std::to_string(manifest.counters.size()) + " counters, at most " +
                           std::to_string(kManifestCountersMax));
  }
  for (const auto& [name, value] : manifest.counters) {
    RETURN_IF_ERROR(check_text(name, "counter"));
  }
  return Status::ok();
}

Status check_files(const Manifest& manifest) {
  // Also apart on file systems that do not tell 'A' from 'a'.
  std::set<std::string> names;
  uint64_t bytes = 0;
  for (const FileRecord& file : manifest.files) {
    const std::string name = "file " + in_quotes(file.name);
    if (!is_plain_file_name(file.name)) {
      return base::data_loss(name +
                             " is no plain name (letters, digits, '.', '_', '-'; not the folder's "
                             "own)");
    }
    if (!names.insert(lower_case(file.name)).second) {
      return base::data_loss(name + " is there twice, or differs from another only in case");
    }
    if (file.bytes > kBytesMax - bytes) {
      return base::data_loss(name + ": the files have more than 2^63 - 1 bytes");
    }
    bytes += file.bytes;
    const std::set<uint32_t> nodes(file.nodes.begin(), file.nodes.end());
    if (nodes.size() != file.nodes.size()) {
      return base::data_loss(name + " names a node twice");
    }
  }
  return Status::ok();
}

base::Result<uint64_t> bytes_of(const Box& box, ElementType type) {
  ASSIGN_OR_RETURN(const uint64_t count, element_count(box.size));
  const unsigned __int128 bits =
      static_cast<unsigned __int128>(count) * static_cast<unsigned __int128>(size_bits(type));
  if (bits % 8 != 0) {
    return base::data_loss(std::to_string(count) + " elements of " + std::string(to_string(type)) +
                           " do not fill whole bytes");
  }
  if (bits / 8 > kBytesMax) return base::data_loss("more than 2^63 - 1 bytes");
  return static_cast<uint64_t>(bits / 8);
}

Status check_chunk(const Manifest& manifest, const TensorRecord& tensor, const ChunkRecord& chunk) {
  const base::Result<uint64_t> bytes = bytes_of(chunk.box, tensor.type);
  if (!bytes.is_ok()) return base::data_loss(bytes.status().message());
  if (chunk.bytes != *bytes) {
    return base::data_loss("has " + std::to_string(chunk.bytes) + " bytes, its box needs " +
                           std::to_string(*bytes));
  }
  if (chunk.file >= manifest.files.size()) {
    return base::data_loss("is in file " + std::to_string(chunk.file) + " of " +
                           std::to_string(manifest.files.size()));
  }
  const FileRecord& file = manifest.files[chunk.file];
  if (chunk.offset > file.bytes || chunk.bytes > file.bytes - chunk.offset) {
    return base::data_loss("has " + std::to_string(chunk.bytes) + " bytes at " +
                           std::to_string(chunk.offset) + " of " + in_quotes(file.name) +
                           ", which has " + std::to_string(file.bytes));
  }
  const uint64_t pieces = chunk.bytes / kPieceBytes + (chunk.bytes % kPieceBytes != 0 ? 1 : 0);
  if (chunk.piece_hashes.size() != pieces) {
    return base::data_loss("has " + std::to_string(chunk.piece_hashes.size()) + " hashes for " +
                           std::to_string(pieces) + " pieces");
  }
  return Status::ok();
}

Status check_alias(const Manifest& manifest, const TensorRecord& tensor) {
  const std::string to = "is an alias of " + in_quotes(tensor.alias_of);
  if (!tensor.chunks.empty()) return base::data_loss(to + " and has chunks of its own");
  const TensorRecord* target = manifest.find(tensor.alias_of);
  if (target == nullptr) return base::data_loss(to + ", which is not there");
  if (!target->alias_of.empty()) return base::data_loss(to + ", which is an alias too");
  if (target->type != tensor.type || target->shape != tensor.shape) {
    return base::data_loss(to + ", which has another type or shape");
  }
  return Status::ok();
}

Status check_tensor(const Manifest& manifest, const TensorRecord& tensor) {
  if (tensor.shape.size() > kManifestDimensionsMax) {
    return base::data_loss("has " + std::to_string(tensor.shape.size()) + " dimensions, at most " +
                           std::to_string(kManifestDimensionsMax));
  }
  if (!tensor.alias_of.empty()) return check_alias(manifest, tensor);
  std::vector<Box> boxes;
  boxes.reserve(tensor.chunks.size());
  for (const ChunkRecord& chunk : tensor.chunks) {
    const Status status = check_chunk(manifest, tensor, chunk);
    if (!status.is_ok()) return status.annotate("chunk " + std::to_string(boxes.size()));
    boxes.push_back(chunk.box);
  }
  return check_tiling(tensor.shape, boxes);
}

Status check_tensors(const Manifest& manifest) {
  const TensorRecord* before = nullptr;
  for (const TensorRecord& tensor : manifest.tensors) {
    RETURN_IF_ERROR(check_text(tensor.name, "tensor"));
    const std::string name = "tensor " + in_quotes(tensor.name);
    if (tensor.name == "__metadata__") {
      return base::data_loss(name + ": files of tensors use this name themselves");
    }
    if (before != nullptr && before->name >= tensor.name) {
      return base::data_loss(name + " does not come after " + in_quotes(before->name));
    }
    before = &tensor;
  }
  // find() needs the order that was just checked.
  for (const TensorRecord& tensor : manifest.tensors) {
    const Status status = check_tensor(manifest, tensor);
    if (!status.is_ok()) return status.annotate("tensor " + in_quotes(tensor.name));
  }
  return Status::ok();
}

// No byte of a file belongs to two chunks.
Status check_overlap(const Manifest& manifest) {
  struct Extent {
    uint32_t file = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
    const TensorRecord* tensor = nullptr;
  };
  std::vector<Extent> extents;
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const ChunkRecord& chunk : tensor.chunks) {
      if (chunk.bytes == 0) continue;
      extents.push_back({chunk.file, chunk.offset, chunk.offset + chunk.bytes, &tensor});
    }
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.file, a.begin, a.end) < std::tie(b.file, b.begin, b.end);
  });
  for (size_t i = 1; i < extents.size(); ++i) {
    const Extent& a = extents[i - 1];
    const Extent& b = extents[i];
    if (a.file != b.file || a.end <= b.begin) continue;
    return base::data_loss("tensors " + in_quotes(a.tensor->name) + " and " +
                           in_quotes(b.tensor->name) + " overlap in " +
                           in_quotes(manifest.files[a.file].name) + " at byte " +
                           std::to_string(b.begin));
  }
  return Status::ok();
}

}  // namespace

bool is_plain_file_name(std::string_view name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  if (!is_plain || name.empty() || name.starts_with('.') || name.size() > kNameBytesMax) {
    return false;
  }
  const std::string lower = lower_case(name);
  return lower != lower_case(kManifestName) && !lower.ends_with(".tmp");
}

base::Status check_manifest(const Manifest& manifest) {
  RETURN_IF_ERROR(check_head(manifest));
  RETURN_IF_ERROR(check_files(manifest));
  RETURN_IF_ERROR(check_tensors(manifest));
  return check_overlap(manifest);
}

}  // namespace perdure::checkpoint
