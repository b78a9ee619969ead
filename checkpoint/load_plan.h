#pragma once
// LoadPlan: which pieces of which files a load needs, where they go, and which are read together.
// Pure: a manifest and what is wanted in, a plan out.
//
//   file   ...|chunk of a      |chunk of b  |chunk of c          |...
//   pieces    |####|####|      |            |    |####|####|     |     # needed by somebody
//   ranges    [---------]                        [---------]           read and verified whole
//
// A piece is in the plan once, however many boxes want a part of it.

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"

namespace perdure::checkpoint {

struct PlannedCopy {
  size_t wanted = 0;  // index of what is wanted
  Box part;           // of the chunk, goes there
};

struct PlannedChunk {
  uint32_t tensor = 0;  // index into Manifest::tensors
  uint32_t chunk = 0;   // index into its chunks
  std::vector<PlannedCopy> copies;
};

struct PlannedPiece {
  size_t chunk = 0;     // index into PlannedFile::chunks
  size_t piece = 0;     // index into the chunk's hashes
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};

struct PlannedRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  size_t piece_begin = 0;  // the pieces that lie in it
  size_t piece_end = 0;
};

// All ascending by their place in the file.
struct PlannedFile {
  uint32_t file = 0;  // index into Manifest::files
  std::vector<PlannedChunk> chunks;
  std::vector<PlannedPiece> pieces;
  std::vector<PlannedRange> ranges;
};

struct LoadPlan {
  std::vector<PlannedFile> files;
  uint64_t wanted_bytes = 0;
  uint64_t read_bytes = 0;  // of all ranges
};

// `manifest` has been checked (check_manifest). Errors: those of load_tensors before it reads.
base::Result<LoadPlan> plan_load(const Manifest& manifest, std::span<const Wanted> wanted,
                                 const LoadOptions& options);
// Every piece of every chunk, to nobody.
LoadPlan plan_verify(const Manifest& manifest, const LoadOptions& options);

// What a message calls a piece: "tensor 'a', piece 3 of [0:4, 0:8] (bytes 64 to 128 of x)".
std::string describe(const Manifest& manifest, const PlannedFile& file, const PlannedPiece& piece);

}  // namespace perdure::checkpoint
