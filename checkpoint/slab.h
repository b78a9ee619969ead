#pragma once
// A slot of a slab: one snapshot in memory that outlives the process which takes it. It is a file
// image, so that it can be written to a disk or sent to another node as it is.
//
//   page 0      SlotHeader: state, where the rest is, hash of the record
//   page 1 ...  a safetensors file (checkpoint/safetensors.h), tensors at their final offsets
//   then        record: what the snapshot is of; each tensor's parts, offsets and piece hashes
//
// Writing:  state = writing ─► data ─► record ─► header ─► state = complete (release)
// A process that is killed in between leaves `writing`: the slot is empty then. A slab has two or
// more slots, so that one is always complete. Format: docs/formats/slab.md.
//
// Threads: one writer. A reader in another process may meet a writer: what it reads is verified,
// and is of use only when the generation is still the same afterwards.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "base/units.h"
#include "checkpoint/box.h"
#include "checkpoint/element_type.h"
#include "checkpoint/safetensors.h"

namespace perdure::checkpoint {

inline constexpr uint32_t kSlabVersion = 1;
inline constexpr size_t kSlotPage = 4096;

// One array of a tensor: its values, or what the optimizer keeps of it.
struct SlotPart {
  std::string name;  // in the safetensors image
  ElementType type = ElementType::kF32;
  Shape shape;
  uint64_t offset = 0;  // in the image
  uint64_t bytes = 0;
  std::vector<uint64_t> piece_hashes;  // of kPieceBytes (checkpoint/manifest.h)
};

struct SlotTensor {
  base::TensorId tensor;
  uint64_t digest = 0;  // of its owner, opaque here
  std::vector<SlotPart> parts;
};

struct SlotRecord {
  uint64_t generation = 0;  // rises with every snapshot of the slab
  uint64_t step = 0;
  std::vector<std::byte> state;  // the owner's scalars, opaque here
  std::vector<SlotTensor> tensors;
  uint64_t image_bytes = 0;
};

// Where everything goes: the same for all snapshots of one layout. Names, types and shapes of the
// parts are given; offsets and bytes are filled in. Errors: those of make_safetensors.
struct SlotPlan {
  std::vector<SlotTensor> tensors;
  std::vector<std::byte> header;  // of the image
  uint64_t image_bytes = 0;
  uint64_t slot_bytes = 0;  // header page, image, room for the record
};
base::Result<SlotPlan> plan_slot(std::vector<SlotTensor> tensors);

// Takes a snapshot. The memory is that of one slot and large enough (CHECK), and outlives it.
class SlotWriter {
 public:
  // From here on the slot's old content is gone.
  SlotWriter(base::MutableByteSpan memory, const SlotPlan& plan);
  // In any order, each part once. `data` is of the part's size (CHECK).
  void copy(size_t tensor, size_t part, base::ByteSpan data);
  void set_digest(size_t tensor, uint64_t digest) { record_.tensors[tensor].digest = digest; }
  // The slot is complete. kResourceExhausted: the record is larger than its room.
  base::Status finish(uint64_t generation, uint64_t step, std::vector<std::byte> state);

 private:
  const base::MutableByteSpan memory_;
  const uint64_t record_offset_;
  SlotRecord record_;
};

// kNotFound: empty, or being written; kDataLoss: a slot that is complete, but whose header or
// record has changed; kUnimplemented: of another version.
base::Result<SlotRecord> read_slot(base::ByteSpan memory);
// The generation that is complete in there now; 0: none. Cheap.
uint64_t slot_generation(base::ByteSpan memory);
// Copies a part out of the slot. kDataLoss names the part and the piece that is not what was
// written; kInvalidArgument: `to` is not of its size; kAborted: the slot was overwritten
// meanwhile.
base::Status read_part(base::ByteSpan memory, const SlotRecord& record, const SlotPart& part,
                       base::MutableByteSpan to);
// The file image. Verified piece by piece with read_part's rules, or not at all by this.
base::ByteSpan slot_image(base::ByteSpan memory, const SlotRecord& record);

}  // namespace perdure::checkpoint
