#include "checkpoint/slab.h"

#include <atomic>
#include <cstring>

#include "base/codec.h"
#include "base/hash.h"
#include "checkpoint/copy_and_hash.h"
#include "checkpoint/manifest.h"

namespace perdure::checkpoint {
namespace {

constexpr uint64_t kMagic = 0x3142414c53445250;  // "PRDSLAB1"
constexpr size_t kNameBytesMax = 1 << 16;
constexpr uint32_t kCountMax = 1 << 24;
constexpr size_t kStateRoom = 4096;

enum class SlotState : uint32_t { kEmpty = 0, kWriting = 1, kComplete = 2 };

struct SlotHeader {
  uint64_t magic;
  uint32_t version;
  std::atomic<uint32_t> state;
  uint64_t generation;
  uint64_t image_bytes;
  uint64_t record_offset;
  uint64_t record_bytes;
  uint64_t record_hash;
  uint64_t header_hash;  // of all before it but `state`
};
static_assert(sizeof(SlotHeader) <= kSlotPage);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

SlotHeader& header_of(base::MutableByteSpan memory) {
  return *reinterpret_cast<SlotHeader*>(memory.data());
}
const SlotHeader& header_of(base::ByteSpan memory) {
  return *reinterpret_cast<const SlotHeader*>(memory.data());
}

uint64_t hash_of(const SlotHeader& h) {
  base::Encoder out;
  out.u64(h.magic);
  out.u32(h.version);
  out.u64(h.generation);
  out.u64(h.image_bytes);
  out.u64(h.record_offset);
  out.u64(h.record_bytes);
  out.u64(h.record_hash);
  return base::hash64(out.bytes());
}

uint64_t pieces_of(uint64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }
uint64_t page_up(uint64_t bytes) { return (bytes + kSlotPage - 1) / kSlotPage * kSlotPage; }

void encode_part(base::Encoder& out, const SlotPart& part) {
  out.string(part.name);
  out.u8(static_cast<uint8_t>(part.type));
  out.u32(static_cast<uint32_t>(part.shape.size()));
  for (const int64_t d : part.shape) out.i64(d);
  out.u64(part.offset);
  out.u64(part.bytes);
  out.u32(static_cast<uint32_t>(part.piece_hashes.size()));
  for (const uint64_t h : part.piece_hashes) out.u64(h);
}

base::Result<uint32_t> read_count(base::Decoder& in, size_t item_bytes) {
  ASSIGN_OR_RETURN(const uint32_t count, in.u32());
  if (count > kCountMax || count > in.left_bytes() / item_bytes)
    return base::data_loss("a count that does not fit: " + std::to_string(count));
  return count;
}

base::Result<SlotPart> decode_part(base::Decoder& in) {
  SlotPart part;
  ASSIGN_OR_RETURN(part.name, in.string(kNameBytesMax));
  ASSIGN_OR_RETURN(const uint8_t type, in.u8());
  part.type = static_cast<ElementType>(type);
  ASSIGN_OR_RETURN(const uint32_t dimensions, read_count(in, 8));
  for (uint32_t d = 0; d < dimensions; ++d) {
    ASSIGN_OR_RETURN(const int64_t size, in.i64());
    part.shape.push_back(size);
  }
  ASSIGN_OR_RETURN(part.offset, in.u64());
  ASSIGN_OR_RETURN(part.bytes, in.u64());
  ASSIGN_OR_RETURN(const uint32_t pieces, read_count(in, 8));
  for (uint32_t i = 0; i < pieces; ++i) {
    ASSIGN_OR_RETURN(const uint64_t hash, in.u64());
    part.piece_hashes.push_back(hash);
  }
  return part;
}

void encode_record(base::Encoder& out, const SlotRecord& record) {
  out.u64(record.generation);
  out.u64(record.step);
  out.bytes(record.state);
  out.u64(record.image_bytes);
  out.u32(static_cast<uint32_t>(record.tensors.size()));
  for (const SlotTensor& tensor : record.tensors) {
    out.u32(tensor.tensor.value());
    out.u64(tensor.digest);
    out.u32(static_cast<uint32_t>(tensor.parts.size()));
    for (const SlotPart& part : tensor.parts) encode_part(out, part);
  }
}

base::Result<SlotRecord> decode_record(base::ByteSpan bytes) {
  base::Decoder in(bytes);
  SlotRecord record;
  ASSIGN_OR_RETURN(record.generation, in.u64());
  ASSIGN_OR_RETURN(record.step, in.u64());
  ASSIGN_OR_RETURN(const base::ByteSpan state, in.bytes(kStateRoom));
  record.state.assign(state.begin(), state.end());
  ASSIGN_OR_RETURN(record.image_bytes, in.u64());
  ASSIGN_OR_RETURN(const uint32_t tensors, read_count(in, 16));
  for (uint32_t t = 0; t < tensors; ++t) {
    SlotTensor tensor;
    ASSIGN_OR_RETURN(const uint32_t id, in.u32());
    tensor.tensor = base::TensorId(id);
    ASSIGN_OR_RETURN(tensor.digest, in.u64());
    ASSIGN_OR_RETURN(const uint32_t parts, read_count(in, 29));
    for (uint32_t p = 0; p < parts; ++p) {
      ASSIGN_OR_RETURN(SlotPart part, decode_part(in));
      const bool fits = part.offset <= record.image_bytes &&
                        part.bytes <= record.image_bytes - part.offset &&
                        part.piece_hashes.size() == pieces_of(part.bytes);
      if (!fits) return base::data_loss("part '" + part.name + "' is not within the image");
      tensor.parts.push_back(std::move(part));
    }
    record.tensors.push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(in.finish());
  return record;
}

}  // namespace

base::Result<SlotPlan> plan_slot(std::vector<SlotTensor> tensors) {
  std::vector<StoredTensor> stored;
  for (const SlotTensor& tensor : tensors) {
    for (const SlotPart& part : tensor.parts)
      stored.push_back({.name = part.name, .type = part.type, .shape = part.shape});
  }
  ASSIGN_OR_RETURN(SafetensorsImage image, make_safetensors(std::move(stored), {}));
  SlotPlan plan{.tensors = std::move(tensors),
                .header = std::move(image.header),
                .image_bytes = image.file_bytes};
  size_t next = 0;
  for (SlotTensor& tensor : plan.tensors) {
    for (SlotPart& part : tensor.parts) {
      const StoredTensor& placed = image.tensors[next++];
      part.offset = plan.header.size() + placed.begin;
      part.bytes = placed.end - placed.begin;
      part.piece_hashes.assign(pieces_of(part.bytes), 0);
    }
  }
  SlotRecord largest{.tensors = plan.tensors, .image_bytes = plan.image_bytes};
  base::Encoder out;
  encode_record(out, largest);
  plan.slot_bytes =
      kSlotPage + page_up(plan.image_bytes) + page_up(out.bytes().size() + kStateRoom);
  return plan;
}

SlotWriter::SlotWriter(base::MutableByteSpan memory, const SlotPlan& plan)
    : memory_(memory), record_offset_(kSlotPage + page_up(plan.image_bytes)) {
  CHECK_GE(memory.size(), plan.slot_bytes);
  SlotHeader& header = header_of(memory_);
  header.state.store(static_cast<uint32_t>(SlotState::kWriting), std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before any of the data
  record_.tensors = plan.tensors;
  record_.image_bytes = plan.image_bytes;
  std::memcpy(memory_.data() + kSlotPage, plan.header.data(), plan.header.size());
}

void SlotWriter::copy(size_t tensor, size_t part, base::ByteSpan data) {
  SlotPart& p = record_.tensors.at(tensor).parts.at(part);
  CHECK_EQ(data.size(), p.bytes);
  copy_and_hash(data, memory_.data() + kSlotPage + p.offset, p.piece_hashes.data());
}

base::Status SlotWriter::finish(uint64_t generation, uint64_t step, std::vector<std::byte> state) {
  record_.generation = generation;
  record_.step = step;
  record_.state = std::move(state);
  base::Encoder out;
  encode_record(out, record_);
  const base::ByteSpan bytes = out.bytes();
  if (record_.state.size() > kStateRoom || bytes.size() > memory_.size() - record_offset_)
    return base::resource_exhausted(
        "a slot's record does not fit: " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(memory_.data() + record_offset_, bytes.data(), bytes.size());
  SlotHeader& header = header_of(memory_);
  header.magic = kMagic;
  header.version = kSlabVersion;
  header.generation = generation;
  header.image_bytes = record_.image_bytes;
  header.record_offset = record_offset_;
  header.record_bytes = bytes.size();
  header.record_hash = base::hash64(bytes);
  header.header_hash = hash_of(header);
  header.state.store(static_cast<uint32_t>(SlotState::kComplete), std::memory_order_release);
  return base::Status::ok();
}

uint64_t slot_generation(base::ByteSpan memory) {
  if (memory.size() < kSlotPage) return 0;
  const SlotHeader& header = header_of(memory);
  const bool complete =
      header.state.load(std::memory_order_acquire) == static_cast<uint32_t>(SlotState::kComplete);
  return complete ? header.generation : 0;
}

base::Result<SlotRecord> read_slot(base::ByteSpan memory) {
  if (slot_generation(memory) == 0) return base::not_found("the slot is empty");
  const SlotHeader& header = header_of(memory);
  if (header.magic != kMagic || header.header_hash != hash_of(header))
    return base::data_loss("the slot's header has changed");
  if (header.version != kSlabVersion)
    return base::unimplemented("a slot of version " + std::to_string(header.version));
  const uint64_t size = memory.size();
  const bool fits = header.image_bytes <= size - kSlotPage && header.record_offset <= size &&
                    header.record_bytes <= size - header.record_offset;
  if (!fits) return base::data_loss("the slot is larger than its memory");
  const base::ByteSpan bytes = memory.subspan(header.record_offset, header.record_bytes);
  if (base::hash64(bytes) != header.record_hash)
    return base::data_loss("the slot's record has changed");
  ASSIGN_OR_RETURN(SlotRecord record, decode_record(bytes));
  if (record.image_bytes != header.image_bytes || record.generation != header.generation)
    return base::data_loss("the slot's record is of another snapshot");
  return record;
}

base::Status read_part(base::ByteSpan memory, const SlotRecord& record, const SlotPart& part,
                       base::MutableByteSpan to) {
  if (to.size() != part.bytes)
    return base::invalid_argument("part '" + part.name + "' has " + std::to_string(part.bytes) +
                                  " bytes, not " + std::to_string(to.size()));
  const base::ByteSpan from = memory.subspan(kSlotPage + part.offset, part.bytes);
  std::vector<uint64_t> hashes(part.piece_hashes.size());
  copy_and_hash(from, to.data(), hashes.data());
  std::atomic_thread_fence(std::memory_order_acquire);
  if (slot_generation(memory) != record.generation)
    return base::aborted("the slot was overwritten while it was read");
  for (size_t i = 0; i < hashes.size(); ++i) {
    if (hashes[i] != part.piece_hashes[i])
      return base::data_loss("part '" + part.name + "', piece " + std::to_string(i) + " of " +
                             std::to_string(hashes.size()) + ": has changed since it was kept");
  }
  return base::Status::ok();
}

base::ByteSpan slot_image(base::ByteSpan memory, const SlotRecord& record) {
  return memory.subspan(kSlotPage, record.image_bytes);
}

}  // namespace perdure::checkpoint
