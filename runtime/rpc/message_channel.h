#pragma once
// MessageChannel: typed messages with a length and a checksum over a byte Channel. Format:
// docs/formats/rpc.md.
//
//   magic u32 · version u16 · type u16 · payload length u32 · budget u32 · epoch u64 ·
//   incarnation u64 · checksum u64 (XXH3 of the payload, seeded with XXH3 of the 32 bytes before) ·
//   payload
//
// Threads: the component's. One send and one receive may be in flight at the same time.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/network.h"

namespace perdure::runtime::rpc {

inline constexpr uint32_t kFrameMagic = 0x4d524450;  // "PDRM"
inline constexpr uint16_t kFrameVersion = 3;
inline constexpr uint32_t kPayloadBytesMax = 16u << 20;
inline constexpr size_t kFrameHeaderBytes = 40;

// Who says it and in which epoch: what is stale is refused by whoever reads it.
struct Stamp {
  base::Epoch epoch;              // the newest that the sender knows; 0: none
  base::Incarnation incarnation;  // of the sender's process; 0: it has none yet
  // An order is dropped by its worker when its turn comes later than this after its arrival; 0:
  // never.
  uint32_t budget_ms = 0;
};

struct Frame {
  uint16_t type = 0;
  Stamp stamp;
  std::vector<std::byte> payload;
};

// What a header says before its payload is there.
struct FrameHeader {
  uint16_t type = 0;
  Stamp stamp;
  uint32_t payload_bytes = 0;
  uint64_t own_hash = 0;  // of the header's bytes before the checksum
  uint64_t checksum = 0;
};

std::vector<std::byte> encode_frame(const Frame& frame);
// kDataLoss: not our magic, another version, a length over the limit.
base::Result<FrameHeader> decode_header(base::ByteSpan header,
                                        uint32_t payload_bytes_max = kPayloadBytesMax);
// kDataLoss when the payload is not the one that the header was made for.
base::Status check_payload(const FrameHeader& header, base::ByteSpan payload);

class MessageChannel {
 public:
  explicit MessageChannel(std::unique_ptr<base::Channel> channel) : channel_(std::move(channel)) {}

  // Errors are those of Channel::send.
  base::Task<base::Status> send(Frame frame, base::Nanos deadline);
  // Also kDataLoss; the channel is then of no more use: close it.
  base::Task<base::Result<Frame>> receive(base::Nanos deadline,
                                          uint32_t payload_bytes_max = kPayloadBytesMax);
  void close() { channel_->close(); }
  base::Address peer() const { return channel_->peer(); }

 private:
  std::unique_ptr<base::Channel> channel_;
};

}  // namespace perdure::runtime::rpc
