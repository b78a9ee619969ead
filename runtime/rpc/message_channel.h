#pragma once
// MessageChannel: typed messages with a length and a checksum over a byte Channel. Format:
// docs/formats/rpc.md.
//
//   magic u32 · version u16 · type u16 · payload length u32 · XXH3 of (type, payload) u64 · payload
//
// Threads: the component's. One send and one receive may be in flight at the same time.

#include <cstdint>
#include <memory>
#include <vector>

#include "base/network.h"

namespace perdure::runtime::rpc {

inline constexpr uint32_t kFrameMagic = 0x4d524450;  // "PDRM"
inline constexpr uint16_t kFrameVersion = 1;
inline constexpr uint32_t kPayloadBytesMax = 4u << 20;
inline constexpr size_t kFrameHeaderBytes = 20;

struct Frame {
  uint16_t type = 0;
  std::vector<std::byte> payload;
};

// What a header says before its payload is there.
struct FrameHeader {
  uint16_t type = 0;
  uint32_t payload_bytes = 0;
  uint64_t checksum = 0;
};

std::vector<std::byte> encode_frame(uint16_t type, base::ByteSpan payload);
// kDataLoss: not our magic, another version, a length over the limit.
base::Result<FrameHeader> decode_header(base::ByteSpan header);
// kDataLoss when the payload is not the one that the header was made for.
base::Status check_payload(const FrameHeader& header, base::ByteSpan payload);

class MessageChannel {
 public:
  explicit MessageChannel(std::unique_ptr<base::Channel> channel) : channel_(std::move(channel)) {}

  // Errors are those of Channel::send.
  base::Task<base::Status> send(uint16_t type, std::vector<std::byte> payload,
                                base::Nanos deadline);
  // Also kDataLoss; the channel is then of no more use: close it.
  base::Task<base::Result<Frame>> receive(base::Nanos deadline);
  void close() { channel_->close(); }
  base::Address peer() const { return channel_->peer(); }

 private:
  std::unique_ptr<base::Channel> channel_;
};

}  // namespace perdure::runtime::rpc
