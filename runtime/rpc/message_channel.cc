#include "runtime/rpc/message_channel.h"

#include <array>

#include "base/codec.h"
#include "base/hash.h"

namespace perdure::runtime::rpc {

std::vector<std::byte> encode_frame(uint16_t type, base::ByteSpan payload) {
  CHECK_LE(payload.size(), kPayloadBytesMax);
  base::Encoder out;
  out.u32(kFrameMagic);
  out.u16(kFrameVersion);
  out.u16(type);
  out.u32(static_cast<uint32_t>(payload.size()));
  out.u64(base::hash64(payload, type));
  out.raw(payload);
  return out.take();
}

base::Result<FrameHeader> decode_header(base::ByteSpan header) {
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
  ASSIGN_OR_RETURN(result.checksum, in.u64());
  if (result.payload_bytes > kPayloadBytesMax) {
    return base::data_loss("message of " + std::to_string(result.payload_bytes) +
                           " bytes, allowed are " + std::to_string(kPayloadBytesMax));
  }
  return result;
}

base::Status check_payload(const FrameHeader& header, base::ByteSpan payload) {
  if (payload.size() != header.payload_bytes ||
      base::hash64(payload, header.type) != header.checksum) {
    return base::data_loss("message of type " + std::to_string(header.type) +
                           " fails its checksum");
  }
  return base::Status::ok();
}

base::Task<base::Status> MessageChannel::send(uint16_t type, std::vector<std::byte> payload,
                                              base::Nanos deadline) {
  const std::vector<std::byte> frame = encode_frame(type, payload);
  co_return co_await channel_->send(frame, deadline);
}

base::Task<base::Result<Frame>> MessageChannel::receive(base::Nanos deadline) {
  std::array<std::byte, kFrameHeaderBytes> bytes;
  CO_RETURN_IF_ERROR(co_await base::receive_all(*channel_, bytes, deadline));
  CO_ASSIGN_OR_RETURN(const FrameHeader header, decode_header(bytes));
  Frame frame{.type = header.type, .payload = std::vector<std::byte>(header.payload_bytes)};
  if (header.payload_bytes > 0) {
    CO_RETURN_IF_ERROR(co_await base::receive_all(*channel_, frame.payload, deadline));
  }
  CO_RETURN_IF_ERROR(check_payload(header, frame.payload));
  co_return frame;
}

}  // namespace perdure::runtime::rpc
