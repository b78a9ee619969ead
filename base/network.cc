#include "base/network.h"

#include <charconv>

namespace perdure::base {

Result<Address> Address::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  uint16_t port = 0;
  if (colon != std::string_view::npos) {
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
    if (parsed.ec == std::errc() && parsed.ptr == end) {
      return Address(std::string(text.substr(0, colon)), port);
    }
  }
  return invalid_argument("address '" + std::string(text) +
                          "': write host:port with a port in [0, 65535]");
}

std::string Address::to_string() const { return host + ":" + std::to_string(port); }

Task<Status> receive_all(Channel& channel, MutableByteSpan buffer, Nanos deadline) {
  size_t done_bytes = 0;
  while (done_bytes < buffer.size()) {
    const Result<size_t> received = co_await channel.receive(buffer.subspan(done_bytes), deadline);
    if (!received.is_ok()) {
      if (received.status().code() != StatusCode::kUnavailable || done_bytes == 0) {
        co_return received.status();
      }
      co_return data_loss("stream cut after " + std::to_string(done_bytes) + " of " +
                          std::to_string(buffer.size()) + " bytes: " + received.status().message());
    }
    done_bytes += *received;
  }
  co_return Status::ok();
}

}  // namespace perdure::base
