#include "base/codec.h"

#include <bit>
#include <cstring>
#include <limits>

namespace perdure::base {
namespace {

// Byte by byte, which compilers turn into one store or load on little-endian machines.
template <typename Int>
void store(std::byte* to, Int value) {
  for (size_t i = 0; i < sizeof(Int); ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

template <typename Int>
Int load(const std::byte* from) {
  Int value = 0;
  for (size_t i = 0; i < sizeof(Int); ++i) {
    value = static_cast<Int>(value | static_cast<Int>(from[i]) << (8 * i));
  }
  return value;
}

}  // namespace

std::byte* Encoder::extend(size_t size_bytes) {
  if (!is_fixed_) {
    grown_.resize(grown_.size() + size_bytes);
    return grown_.data() + grown_.size() - size_bytes;
  }
  if (missing_bytes_ > 0 || size_bytes > fixed_.size() - used_bytes_) {
    missing_bytes_ += size_bytes;
    return nullptr;
  }
  used_bytes_ += size_bytes;
  return fixed_.data() + used_bytes_ - size_bytes;
}

void Encoder::u8(uint8_t value) {
  if (std::byte* to = extend(1)) store(to, value);
}
void Encoder::u16(uint16_t value) {
  if (std::byte* to = extend(2)) store(to, value);
}
void Encoder::u32(uint32_t value) {
  if (std::byte* to = extend(4)) store(to, value);
}
void Encoder::u64(uint64_t value) {
  if (std::byte* to = extend(8)) store(to, value);
}
void Encoder::f64(double value) { u64(std::bit_cast<uint64_t>(value)); }

void Encoder::raw(ByteSpan bytes) {
  if (bytes.empty()) return;
  if (std::byte* to = extend(bytes.size())) std::memcpy(to, bytes.data(), bytes.size());
}

void Encoder::bytes(ByteSpan bytes) {
  CHECK_LE(bytes.size(), std::numeric_limits<uint32_t>::max());
  u32(static_cast<uint32_t>(bytes.size()));
  raw(bytes);
}

ByteSpan Encoder::bytes() const {
  if (is_fixed_) return fixed_.first(used_bytes_);
  return grown_;
}

Status Encoder::status() const {
  if (missing_bytes_ == 0) return Status::ok();
  return resource_exhausted("encode: the buffer of " + std::to_string(fixed_.size()) +
                            " bytes is " + std::to_string(missing_bytes_) + " bytes too small");
}

void Encoder::clear() {
  grown_.clear();
  used_bytes_ = 0;
  missing_bytes_ = 0;
}

std::vector<std::byte> Encoder::take() {
  CHECK(!is_fixed_);
  return std::exchange(grown_, {});
}

template <typename Int>
Result<Int> Decoder::read_int() {
  ASSIGN_OR_RETURN(const ByteSpan from, raw(sizeof(Int)));
  return load<Int>(from.data());
}

Result<uint8_t> Decoder::u8() { return read_int<uint8_t>(); }
Result<uint16_t> Decoder::u16() { return read_int<uint16_t>(); }
Result<uint32_t> Decoder::u32() { return read_int<uint32_t>(); }
Result<uint64_t> Decoder::u64() { return read_int<uint64_t>(); }

Result<int64_t> Decoder::i64() {
  ASSIGN_OR_RETURN(const uint64_t bits, u64());
  return static_cast<int64_t>(bits);
}

Result<double> Decoder::f64() {
  ASSIGN_OR_RETURN(const uint64_t bits, u64());
  return std::bit_cast<double>(bits);
}

Result<ByteSpan> Decoder::raw(size_t size_bytes) {
  if (size_bytes > left_bytes()) {
    return data_loss("decode: " + std::to_string(size_bytes) + " bytes wanted at offset " +
                     std::to_string(offset_) + ", " + std::to_string(left_bytes()) + " left");
  }
  const ByteSpan view = bytes_.subspan(offset_, size_bytes);
  offset_ += size_bytes;
  return view;
}

Result<ByteSpan> Decoder::bytes(size_t size_bytes_max) {
  ASSIGN_OR_RETURN(const uint32_t size_bytes, u32());
  if (size_bytes > size_bytes_max) {
    return data_loss("decode: length " + std::to_string(size_bytes) + " at offset " +
                     std::to_string(offset_ - 4) + " is above the limit of " +
                     std::to_string(size_bytes_max));
  }
  return raw(size_bytes);
}

Result<std::string> Decoder::string(size_t size_bytes_max) {
  ASSIGN_OR_RETURN(const ByteSpan view, bytes(size_bytes_max));
  return std::string(as_text(view));
}

Status Decoder::finish() const {
  if (left_bytes() == 0) return Status::ok();
  return data_loss("decode: " + std::to_string(left_bytes()) + " bytes left over at offset " +
                   std::to_string(offset_));
}

}  // namespace perdure::base
