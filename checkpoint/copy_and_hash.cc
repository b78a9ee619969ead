#include "checkpoint/copy_and_hash.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "checkpoint/manifest.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace perdure::checkpoint {
namespace {

// Stays in the second cache of one core between the copy and the hash.
constexpr size_t kBlockBytes = 256 << 10;
static_assert(kPieceBytes % kBlockBytes == 0);

#if defined(__x86_64__)

constexpr size_t kLineBytes = 64;

// Stores that do not read what they overwrite and leave the cache to `from`. `to` is aligned to 16.
size_t stream_lines(base::ByteSpan from, std::byte* to) {
  const size_t bytes = from.size() / kLineBytes * kLineBytes;
  for (size_t at = 0; at < bytes; at += kLineBytes) {
    const auto* source = reinterpret_cast<const __m128i*>(from.data() + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  return bytes;
}

void copy(base::ByteSpan from, std::byte* to) {
  const size_t head = std::min<size_t>(-reinterpret_cast<uintptr_t>(to) % 16, from.size());
  std::memcpy(to, from.data(), head);
  const size_t end = head + stream_lines(from.subspan(head), to + head);
  std::memcpy(to + end, from.data() + end, from.size() - end);
}

// Others that are told of the copy must see it.
void end_copies() { _mm_sfence(); }

#else

void copy(base::ByteSpan from, std::byte* to) { std::memcpy(to, from.data(), from.size()); }
void end_copies() {}

#endif

}  // namespace

void copy_and_hash(base::ByteSpan from, std::byte* to, uint64_t* piece_hashes) {
  while (!from.empty()) {
    base::ByteSpan piece = from.first(std::min<size_t>(kPieceBytes, from.size()));
    from = from.subspan(piece.size());
    base::Hasher hasher;
    while (!piece.empty()) {
      const base::ByteSpan block = piece.first(std::min(kBlockBytes, piece.size()));
      copy(block, to);
      hasher.update(block);
      to += block.size();
      piece = piece.subspan(block.size());
    }
    *piece_hashes++ = hasher.digest64();
  }
  end_copies();
}

}  // namespace perdure::checkpoint
