#include "runtime/worker/state_transfer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <vector>

#include "base/fault_point.h"
#include "base/hash.h"
#include "kernels/host_memory.h"
#include "runtime/worker/epoch_phases.h"

namespace perdure::runtime::worker {
namespace {

using collective::Ticket;

constexpr uint64_t kChunkMagic = 0x0001'4b4e'4853'5250;  // "PRSHNK", version 1
constexpr size_t kWindow = 8;                            // chunks in flight
static_assert(std::endian::native == std::endian::little, "headers are little-endian words");

struct ChunkHeader {
  uint64_t magic = kChunkMagic;
  uint64_t tensor = 0;
  uint64_t chunk = 0;   // index in the tensor
  uint64_t offset = 0;  // of the payload in the tensor's state
  uint64_t bytes = 0;   // of the payload
  uint64_t step = 0;    // committed
  uint64_t digest = 0;  // of the whole tensor
  uint64_t hash = 0;    // XXH3 of the payload, seeded with that of the seven words before
};
static_assert(sizeof(ChunkHeader) == 64);

uint64_t hash_of(const ChunkHeader& header, base::ByteSpan payload) {
  const base::ByteSpan bytes = std::as_bytes(std::span(&header, 1));
  return base::hash64(payload, base::hash64(bytes.first(sizeof header - sizeof header.hash)));
}

// One chunk that this rank sends or receives.
struct Chunk {
  base::TensorId tensor;
  base::Rank peer;
  bool is_sent = false;
  bool is_last = false;   // of its tensor
  uint32_t sequence = 0;  // over all chunks of the epoch
  uint64_t index = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

class Transfer {
 public:
  Transfer(const TransferOptions& options, engine::TensorStore& store, collective::Fabric& fabric)
      : o_(options), store_(store), fabric_(fabric) {}

  base::Result<uint64_t> run() {
    base::Status status = FAULT_STATUS(kEpochTransfer);
    if (status.is_ok()) status = list_chunks();
    if (status.is_ok() && !chunks_.empty()) status = move_chunks();
    if (!status.is_ok()) {
      fabric_.abort(status);
      // What is in flight points into the buffers; its errors are those of the abort.
      while (done_ < started_)
        static_cast<void>(fabric_.wait(tickets_[done_++ % kWindow], o_.timeout));
      store_.drop_staged();
      return status;
    }
    return received_;
  }

 private:
  base::Status list_chunks() {
    uint32_t sequence = 0;
    std::vector<base::TensorId> arriving;
    std::set<base::TensorId> seen;
    for (const parallel::TensorMove& move : o_.moves) {
      const size_t bytes = store_.wire_bytes(move.tensor);
      const bool is_sent = move.from == fabric_.rank();
      if (move.to == fabric_.rank()) {
        if (!seen.insert(move.tensor).second) {
          return base::invalid_argument(name(move.tensor) + " is to arrive twice");
        }
        arriving.push_back(move.tensor);
      } else if (is_sent && !store_.holds(move.tensor)) {
        return base::failed_precondition(name(move.tensor) + " is to be sent by rank " +
                                         std::to_string(move.from.value()) +
                                         ", which does not hold it");
      }
      for (size_t at = 0; at < bytes; at += kStateChunkBytes, ++sequence) {
        if (!is_sent && move.to != fabric_.rank()) continue;
        const size_t count = std::min(kStateChunkBytes, bytes - at);
        chunks_.push_back({.tensor = move.tensor,
                           .peer = is_sent ? move.to : move.from,
                           .is_sent = is_sent,
                           .is_last = at + count == bytes,
                           .sequence = sequence,
                           .index = at / kStateChunkBytes,
                           .offset = at,
                           .bytes = count});
      }
    }
    return store_.stage(arriving);
  }

  base::Status move_chunks() {
    ASSIGN_OR_RETURN(stream_, store_.device().make_stream());
    ASSIGN_OR_RETURN(buffers_, kernels::HostRegion::make(kWindow * kMessageBytes));
    bool serves = false;
    for (const Chunk& chunk : chunks_) {
      if (started_ - done_ == kWindow) RETURN_IF_ERROR(finish_oldest());
      if (chunk.is_sent && !std::exchange(serves, true)) RETURN_IF_ERROR(FAULT_STATUS(kEpochServe));
      RETURN_IF_ERROR(start(chunk));
    }
    while (done_ < started_) RETURN_IF_ERROR(finish_oldest());
    return base::Status::ok();
  }

  base::Status start(const Chunk& chunk) {
    const std::span<std::byte> message =
        message_of(started_).first(sizeof(ChunkHeader) + chunk.bytes);
    const collective::Tag tag{collective::Channel::kState, step(), chunk.sequence % (1u << 20)};
    if (!chunk.is_sent) {
      tickets_[started_++ % kWindow] = fabric_.post_receive(chunk.peer, tag, message);
      return base::Status::ok();
    }
    const engine::StoredTensor& tensor = store_.held(chunk.tensor);
    const std::span<std::byte> payload = message.subspan(sizeof(ChunkHeader));
    RETURN_IF_ERROR(store_.device().copy(*stream_, payload.data(),
                                         tensor.wire.data() + chunk.offset, chunk.bytes,
                                         kernels::CopyKind::kDeviceToHost));
    RETURN_IF_ERROR(stream_->synchronize());
    ChunkHeader header = expected_header(chunk);
    header.digest = tensor.digest;
    header.hash = hash_of(header, payload);
    std::memcpy(message.data(), &header, sizeof header);
    FAULT_BYTES(kEpochChunk, payload);
    tickets_[started_++ % kWindow] = fabric_.post_send(chunk.peer, tag, message);
    return base::Status::ok();
  }

  base::Status finish_oldest() {
    const Chunk& chunk = chunks_[done_];
    const std::span<std::byte> message = message_of(done_);
    const base::Status moved = fabric_.wait(tickets_[done_++ % kWindow], o_.timeout);
    if (!moved.is_ok()) return moved.annotate(place(chunk));
    if (chunk.is_sent) return base::Status::ok();
    ChunkHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    const std::span<std::byte> payload = message.subspan(sizeof header, chunk.bytes);
    RETURN_IF_ERROR(check(chunk, header, payload));
    RETURN_IF_ERROR(
        store_.device().copy(*stream_, store_.staged(chunk.tensor).wire.data() + chunk.offset,
                             payload.data(), chunk.bytes, kernels::CopyKind::kHostToDevice));
    RETURN_IF_ERROR(stream_->synchronize());
    received_ += chunk.bytes;
    if (!chunk.is_last) return base::Status::ok();
    const base::Status whole = store_.adopt(chunk.tensor, header.digest);
    return whole.is_ok() ? whole
                         : whole.annotate("from rank " + std::to_string(chunk.peer.value()));
  }

  base::Status check(const Chunk& chunk, const ChunkHeader& header, base::ByteSpan payload) const {
    const ChunkHeader expected = expected_header(chunk);
    if (header.magic != expected.magic || header.tensor != expected.tensor ||
        header.chunk != expected.chunk || header.offset != expected.offset ||
        header.bytes != expected.bytes || header.step != expected.step) {
      return base::data_loss(place(chunk) + ": another chunk came in its place");
    }
    if (header.hash != hash_of(header, payload)) {
      return base::data_loss(place(chunk) + ": its checksum is wrong");
    }
    return base::Status::ok();
  }

  ChunkHeader expected_header(const Chunk& chunk) const {
    return {.tensor = chunk.tensor.value(),
            .chunk = chunk.index,
            .offset = chunk.offset,
            .bytes = chunk.bytes,
            .step = store_.committed().step.value()};
  }

  std::string name(base::TensorId id) const {
    return "tensor " + std::to_string(id.value()) + " (" + store_.model().tensor(id).name + ")";
  }
  std::string place(const Chunk& chunk) const {
    return name(chunk.tensor) + ", chunk " + std::to_string(chunk.index) +
           (chunk.is_sent ? " to rank " : " from rank ") + std::to_string(chunk.peer.value());
  }
  std::span<std::byte> message_of(size_t index) const {
    return {buffers_.data() + index % kWindow * kMessageBytes, kMessageBytes};
  }
  uint32_t step() const { return static_cast<uint32_t>(store_.committed().step.value()); }

  static constexpr size_t kMessageBytes = kStateChunkBytes + sizeof(ChunkHeader);

  const TransferOptions& o_;
  engine::TensorStore& store_;
  collective::Fabric& fabric_;
  std::unique_ptr<kernels::Stream> stream_;
  kernels::HostRegion buffers_;
  std::vector<Chunk> chunks_;  // of this rank, in the order of all
  std::array<Ticket, kWindow> tickets_{};
  size_t started_ = 0;  // of chunks_
  size_t done_ = 0;     // waited for
  uint64_t received_ = 0;
};

}  // namespace

base::Result<uint64_t> transfer_state(const TransferOptions& options, engine::TensorStore& store,
                                      collective::Fabric& fabric) {
  return Transfer(options, store, fabric).run();
}

}  // namespace perdure::runtime::worker
