#pragma once
// The manifest: what one checkpoint is. A checkpoint is committed exactly when its manifest is
// there, whole. JSON, so that a person can read it, and a last line with its length and XXH3, so
// that a part of it is never taken for the whole. Format: docs/formats/manifest.md.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/box.h"
#include "checkpoint/element_type.h"

namespace perdure::checkpoint {

inline constexpr uint32_t kManifestVersion = 1;
inline constexpr std::string_view kManifestName = "MANIFEST";
inline constexpr uint64_t kManifestBytesMax = uint64_t{1} << 30;
inline constexpr size_t kManifestCountersMax = 1000;
inline constexpr size_t kManifestDimensionsMax = 64;
inline constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

// A part of a tensor as it lies in a file, row-major, in one run of bytes.
struct ChunkRecord {
  Box box;
  uint32_t file = 0;    // index into Manifest::files
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
  // XXH3 of each piece of kPieceBytes (the last one shorter), so that a part can be read and
  // verified alone. None for a chunk without bytes.
  std::vector<uint64_t> piece_hashes;
};

struct TensorRecord {
  std::string name;
  ElementType type = ElementType::kF32;
  Shape shape;                      // of the whole tensor
  std::vector<ChunkRecord> chunks;  // tile it; replicas are in `copies` of the file, not here
  std::string alias_of;             // tied to this tensor: has no chunks
};

struct FileRecord {
  std::string name;  // one plain component
  uint64_t bytes = 0;
  uint64_t hash = 0;            // over the piece hashes of all that is in it, and its header
  std::vector<uint32_t> nodes;  // who has it; empty: it lies in the folder itself
};

struct Manifest {
  uint32_t version = kManifestVersion;
  uint64_t step = 0;
  uint64_t epoch = 0;
  uint64_t attempt = 0;  // random; two saves of one step in one epoch are not mixed
  std::string model;     // a person's hint: "llama 4 x 128"
  std::string layout;    // the same: "2 pipelines x 2 stages"; never needed to load
  std::map<std::string, uint64_t> counters;  // "samples_consumed", "applied_steps", ...
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;  // ascending by name
  const TensorRecord* find(std::string_view name) const;
};

std::vector<std::byte> encode_manifest(const Manifest& manifest);
// kDataLoss: cut, changed, or not consistent in itself (see check_manifest). kUnimplemented: of a
// newer version.
base::Result<Manifest> parse_manifest(base::ByteSpan bytes, std::string_view name);
// Chunks tile their tensors, lie within their files and do not overlap there, have as many hashes
// as pieces; names are plain and unique; aliases lead to tensors of the same type and shape.
base::Status check_manifest(const Manifest& manifest);

// One component of letters, digits, '.', '_', '-', not beginning with '.', at most 200 long, and
// none that the folder uses itself.
bool is_plain_file_name(std::string_view name);

// Piece hashes of a chunk that is in memory.
std::vector<uint64_t> hash_pieces(base::ByteSpan chunk);
// FileRecord::hash. `header`: the bytes before the first chunk. `piece_hashes`: of all chunks that
// are in the file, ascending by offset.
uint64_t hash_file(base::ByteSpan header, std::span<const uint64_t> piece_hashes);

}  // namespace perdure::checkpoint
