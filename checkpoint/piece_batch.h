#pragma once
// Batches of pieces: as much of a planned file as fits the scratch memory, read at once and checked
// piece by piece before anybody sees it.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "checkpoint/load_plan.h"

namespace perdure::checkpoint {

// Ranges of a planned file that fit together.
struct Batch {
  size_t range_begin = 0;
  size_t range_end = 0;
  uint64_t bytes = 0;
};
// A range that is larger than `bytes_max` alone is a batch of its own.
std::vector<Batch> batches_of(const PlannedFile& file, uint64_t bytes_max);

// Memory that is used again from batch to batch; not filled with zeros first.
class Scratch {
 public:
  base::MutableByteSpan take(uint64_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  uint64_t bytes_ = 0;
};

struct PlacedPiece {
  const PlannedPiece* piece = nullptr;
  base::MutableByteSpan at;  // in the scratch memory
};

struct PlacedBatch {
  std::vector<ReadRange> ranges;
  std::vector<PlacedPiece> pieces;
};
PlacedBatch place(const PlannedFile& file, const Batch& batch, Scratch& scratch);

// kDataLoss names the tensor, the piece and both hashes.
base::Status check_piece(const Manifest& manifest, const PlannedFile& file,
                         const PlacedPiece& placed);

// kCancelled when it was told to leave.
base::Status check_leave(const LoadOptions& options);

}  // namespace perdure::checkpoint
