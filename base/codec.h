#pragma once
// Little-endian encoding with bounds checks, for wire messages and file headers.
//
//   Encoder out;                                   Decoder in(bytes);
//   out.u32(kVersion);                             ASSIGN_OR_RETURN(const uint32_t version,
//   in.u32()); out.string(name);                              ASSIGN_OR_RETURN(name,
//   in.string(kNameBytesMax)); send(out.bytes()); RETURN_IF_ERROR(in.finish());

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace perdure::base {

// Writes to a buffer of its own that grows, or to a fixed one. Not thread-safe. A fixed buffer that
// is too small keeps what fitted and is told by status(): kResourceExhausted.
class Encoder {
 public:
  Encoder() = default;
  explicit Encoder(MutableByteSpan fixed) : fixed_(fixed), is_fixed_(true) {}
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  void u8(uint8_t value);
  void u16(uint16_t value);
  void u32(uint32_t value);
  void u64(uint64_t value);
  void i64(int64_t value) { u64(static_cast<uint64_t>(value)); }
  void f64(double value);
  void raw(ByteSpan bytes);    // without its length
  void bytes(ByteSpan bytes);  // u32 length, then the bytes
  void string(std::string_view text) { bytes(as_byte_span(text)); }

  ByteSpan bytes() const;
  Status status() const;
  void clear();
  // The grown buffer; the encoder is then empty.
  std::vector<std::byte> take();

 private:
  std::byte* extend(size_t size_bytes);  // null when the fixed buffer is full

  std::vector<std::byte> grown_;
  MutableByteSpan fixed_;
  bool is_fixed_ = false;
  size_t used_bytes_ = 0;  // of fixed_
  size_t missing_bytes_ = 0;
};

// Reads what an Encoder wrote. Every error is kDataLoss with the offset. Not thread-safe; views
// point into the decoded bytes.
class Decoder {
 public:
  explicit Decoder(ByteSpan bytes) : bytes_(bytes) {}

  Result<uint8_t> u8();
  Result<uint16_t> u16();
  Result<uint32_t> u32();
  Result<uint64_t> u64();
  Result<int64_t> i64();
  Result<double> f64();
  Result<ByteSpan> raw(size_t size_bytes);
  Result<ByteSpan> bytes(size_t size_bytes_max);
  Result<std::string> string(size_t size_bytes_max);

  size_t offset() const { return offset_; }
  size_t left_bytes() const { return bytes_.size() - offset_; }

  // Bytes that nobody read are an error, too.
  Status finish() const;

 private:
  template <typename Int>
  Result<Int> read_int();

  ByteSpan bytes_;
  size_t offset_ = 0;
};

}  // namespace perdure::base
