#include "runtime/rpc/message_channel.h"

#include <array>

#include "base/codec.h"
#include "base/hash.h"

namespace perdure::runtime::rpc {
namespace {

constexpr size_t kHashedHeaderBytes = kFrameHeaderBytes - 8;

}  // namespace

std::vector<std::byte> encode_frame(const Frame& frame) {
  CHECK_LE(frame.payload.size(), kPayloadBytesMax);
  base::Encoder out;
  out.u32(kFrameMagic);
  out.u16(kFrameVersion);
  out.u16(frame.type);
  out.u32(static_cast<uint32_t>(frame.payload.size()));
  out.u32(frame.stamp.budget_ms);
  out.u64(frame.stamp.epoch.value());
  out.u64(frame.stamp.incarnation.value());
  CHECK_EQ(out.bytes().size(), kHashedHeaderBytes);
  out.u64(base::hash64(frame.payload, base::hash64(out.bytes())));
  out.raw(frame.payload);
  return out.take();
}

base::Result<FrameHeader> decode_header(base::ByteSpan header, uint32_t payload_bytes_max) {
  base::Decoder in(header);
  FrameHeader result;
  ASSIGN_OR_RETURN(const uint32_t magic, in.u32());
  if (magic != kFrameMagic) return base::data_loss("not a Perdure message");
  ASSIGN_OR_RETURN(const uint16_t version, in.u16());
  if (version != kFrameVersion) {
    return base::data_loss("message of protocol version " + std::to_string(version) + ", this is " +
                           std::to_string(kFrameVersion));
  }
  ASSIGN_OR_RETURN(result.type, in.u16());
  ASSIGN_OR_RETURN(result.payload_bytes, in.u32());
  ASSIGN_OR_RETURN(result.stamp.budget_ms, in.u32());
  ASSIGN_OR_RETURN(const uint64_t epoch, in.u64());
  ASSIGN_OR_RETURN(const uint64_t incarnation, in.u64());
  ASSIGN_OR_RETURN(result.checksum, in.u64());
  result.stamp.epoch = base::Epoch(epoch);
  result.stamp.incarnation = base::Incarnation(incarnation);
  result.own_hash = base::hash64(header.first(kHashedHeaderBytes));
  if (result.payload_bytes > payload_bytes_max) {
    return base::data_loss("message of " + std::to_string(result.payload_bytes) +
                           " bytes, allowed are " + std::to_string(payload_bytes_max));
  }
  return result;
}

base::Status check_payload(const FrameHeader& header, base::ByteSpan payload) {
  if (payload.size() != header.payload_bytes ||
      base::hash64(payload, header.own_hash) != header.checksum) {
    return base::data_loss("message of type " + std::to_string(header.type) +
                           " fails its checksum");
  }
  return base::Status::ok();
}

base::Task<base::Status> MessageChannel::send(Frame frame, base::Nanos deadline) {
  const std::vector<std::byte> bytes = encode_frame(frame);
  co_return co_await channel_->send(bytes, deadline);
}

base::Task<base::Result<Frame>> MessageChannel::receive(base::Nanos deadline,
                                                        uint32_t payload_bytes_max) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  CO_RETURN_IF_ERROR(co_await base::receive_all(*channel_, bytes, deadline));
  CO_ASSIGN_OR_RETURN(const FrameHeader header, decode_header(bytes, payload_bytes_max));
  Frame frame{.type = header.type,
              .stamp = header.stamp,
              .payload = std::vector<std::byte>(header.payload_bytes)};
  if (header.payload_bytes > 0) {
    CO_RETURN_IF_ERROR(co_await base::receive_all(*channel_, frame.payload, deadline));
  }
  CO_RETURN_IF_ERROR(check_payload(header, frame.payload));
  co_return frame;
}

}  // namespace perdure::runtime::rpc
