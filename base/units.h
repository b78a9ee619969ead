#pragma once
// Units: nanoseconds for every duration and every point in time, bytes as size_t with binary
// literals.
//
//   using namespace perdure::base::literals;
//   const Nanos deadline = clock.now() + 500_ms;
//   const size_t chunk_bytes = 4_MiB;

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace perdure::base {

// A duration, or a point in time on one Clock (which counts from an arbitrary start).
using Nanos = std::chrono::nanoseconds;

// A deadline that never comes. Only for waits that something else is sure to end.
inline constexpr Nanos kNoDeadline = Nanos::max();

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan as_byte_span(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr double to_seconds(Nanos t) { return static_cast<double>(t.count()) * 1e-9; }
constexpr double to_ms(Nanos t) { return static_cast<double>(t.count()) * 1e-6; }
constexpr Nanos from_seconds(double s) { return Nanos(static_cast<int64_t>(s * 1e9)); }

// now + delay that stops at kNoDeadline instead of overflowing.
constexpr Nanos saturating_add(Nanos now, Nanos delay) {
  return delay > kNoDeadline - now ? kNoDeadline : now + delay;
}

inline namespace literals {
constexpr Nanos operator""_ns(unsigned long long n) { return Nanos(static_cast<int64_t>(n)); }
constexpr Nanos operator""_us(unsigned long long n) {
  return Nanos(static_cast<int64_t>(n * 1000));
}
constexpr Nanos operator""_ms(unsigned long long n) {
  return Nanos(static_cast<int64_t>(n * 1000'000));
}
constexpr Nanos operator""_s(unsigned long long n) {
  return Nanos(static_cast<int64_t>(n * 1000'000'000));
}
constexpr size_t operator""_KiB(unsigned long long n) { return static_cast<size_t>(n) << 10; }
constexpr size_t operator""_MiB(unsigned long long n) { return static_cast<size_t>(n) << 20; }
constexpr size_t operator""_GiB(unsigned long long n) { return static_cast<size_t>(n) << 30; }
}  // namespace literals

}  // namespace perdure::base
