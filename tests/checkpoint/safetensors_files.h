#pragma once
// Safetensors files of a few bytes, right and wrong.

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"

namespace perdure::checkpoint::testing {

inline std::vector<std::byte> bytes_of(std::string_view text) {
  const base::ByteSpan bytes = base::as_byte_span(text);
  return {bytes.begin(), bytes.end()};
}

inline std::string length_field(uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> (8 * i));
  return text;
}

inline std::vector<std::byte> file_of(std::string_view json, size_t data_bytes) {
  return bytes_of(length_field(json.size()) + std::string(json) + std::string(data_bytes, 'd'));
}

// A file in memory. It can end early for reads, and have another size each time it is asked.
class MemoryFile final : public base::File {
 public:
  explicit MemoryFile(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  size_t read_bytes_max = SIZE_MAX;
  base::Status read_error;
  base::Status size_error;
  uint64_t grows_by = 0;

  base::Result<size_t> pread(uint64_t offset, base::MutableByteSpan buffer) override {
    if (!read_error.is_ok()) return read_error;
    const size_t end = std::min<size_t>({bytes_.size(), offset + buffer.size(), read_bytes_max});
    if (offset >= end) return size_t{0};
    std::memcpy(buffer.data(), bytes_.data() + offset, end - offset);
    return end - offset;
  }
  base::Status pwrite(uint64_t, base::ByteSpan) override { return base::unimplemented("pwrite"); }
  base::Status append(base::ByteSpan) override { return base::unimplemented("append"); }
  base::Status sync() override { return base::Status::ok(); }
  base::Result<uint64_t> size() const override {
    if (!size_error.is_ok()) return size_error;
    return bytes_.size() + grows_by * size_calls_++;
  }
  base::Status truncate(uint64_t) override { return base::unimplemented("truncate"); }
  base::Status close() override { return base::Status::ok(); }

 private:
  const std::vector<std::byte> bytes_;
  mutable uint64_t size_calls_ = 0;
};

}  // namespace perdure::checkpoint::testing
