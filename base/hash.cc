#include "base/hash.h"

#define XXH_STATIC_LINKING_ONLY  // for the size of XXH3_state_t
#include <xxhash.h>
#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same values with the widest registers of this processor
#endif

#include <iomanip>
#include <new>

#include "base/check.h"

namespace perdure::base {
namespace {

XXH3_state_t* as_state(std::byte* bytes) {
  return std::launder(reinterpret_cast<XXH3_state_t*>(bytes));
}
const XXH3_state_t* as_state(const std::byte* bytes) {
  return std::launder(reinterpret_cast<const XXH3_state_t*>(bytes));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Hash128& hash) {
  const auto flags = out.flags();
  out << std::hex << std::setfill('0') << std::setw(16) << hash.high << std::setw(16) << hash.low;
  out.flags(flags);
  return out;
}

uint64_t hash64(ByteSpan bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Hash128 hash128(ByteSpan bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

Hasher::Hasher(uint64_t seed) {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_) && alignof(XXH3_state_t) <= 64);
  new (state_) XXH3_state_t;
  XXH3_INITSTATE(as_state(state_));
  // The 64 and the 128 bit hash differ only in how the state is folded at the end.
  CHECK_EQ(XXH3_128bits_reset_withSeed(as_state(state_), seed), XXH_OK);
}

void Hasher::update(ByteSpan bytes) {
  CHECK_EQ(XXH3_128bits_update(as_state(state_), bytes.data(), bytes.size()), XXH_OK);
}

uint64_t Hasher::digest64() const { return XXH3_64bits_digest(as_state(state_)); }

Hash128 Hasher::digest128() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(as_state(state_));
  return {hash.low64, hash.high64};
}

}  // namespace perdure::base
