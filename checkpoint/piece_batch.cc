#include "checkpoint/piece_batch.h"

#include <iomanip>
#include <sstream>

#include "base/check.h"
#include "base/hash.h"

namespace perdure::checkpoint {

std::vector<Batch> batches_of(const PlannedFile& file, uint64_t bytes_max) {
  std::vector<Batch> batches;
  for (size_t r = 0; r < file.ranges.size(); ++r) {
    const uint64_t bytes = file.ranges[r].bytes;
    if (batches.empty() || batches.back().bytes + bytes > bytes_max) {
      batches.push_back({.range_begin = r, .range_end = r});
    }
    batches.back().bytes += bytes;
    batches.back().range_end = r + 1;
  }
  return batches;
}

base::MutableByteSpan Scratch::take(uint64_t bytes) {
  if (bytes > bytes_) {
    memory_.reset();
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    bytes_ = bytes;
  }
  return {memory_.get(), bytes};
}

PlacedBatch place(const PlannedFile& file, const Batch& batch, Scratch& scratch) {
  PlacedBatch placed;
  base::MutableByteSpan left = scratch.take(batch.bytes);
  for (size_t r = batch.range_begin; r < batch.range_end; ++r) {
    const PlannedRange& range = file.ranges[r];
    placed.ranges.push_back({.offset = range.offset, .to = left.first(range.bytes)});
    for (size_t p = range.piece_begin; p < range.piece_end; ++p) {
      const PlannedPiece& piece = file.pieces[p];
      placed.pieces.push_back(
          {.piece = &piece, .at = left.subspan(piece.offset - range.offset, piece.bytes)});
    }
    left = left.subspan(range.bytes);
  }
  CHECK(left.empty());
  return placed;
}

base::Status check_piece(const Manifest& manifest, const PlannedFile& file,
                         const PlacedPiece& placed) {
  const PlannedChunk& planned = file.chunks[placed.piece->chunk];
  const ChunkRecord& chunk = manifest.tensors[planned.tensor].chunks[planned.chunk];
  const uint64_t expected = chunk.piece_hashes[placed.piece->piece];
  const uint64_t hash = base::hash64(placed.at);
  if (hash == expected) return base::Status::ok();
  std::ostringstream text;
  text << describe(manifest, file, *placed.piece) << ": its XXH3 is " << std::hex
       << std::setfill('0') << std::setw(16) << hash << ", the manifest says " << std::setw(16)
       << expected;
  return base::data_loss(text.str());
}

base::Status check_leave(const LoadOptions& options) {
  if (options.leave == nullptr || !options.leave->load()) return base::Status::ok();
  return base::cancelled("a load was told to leave");
}

}  // namespace perdure::checkpoint
