#pragma once
// XXH3: fast, good, not cryptographic. For checksums of copies and messages and for digests of
// state. The values are part of file formats: they are the same on every machine.

#include <cstdint>
#include <ostream>

#include "base/units.h"

namespace perdure::base {

struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
std::ostream& operator<<(std::ostream& out, const Hash128& hash);  // 32 hex digits, high half first

uint64_t hash64(ByteSpan bytes, uint64_t seed = 0);
Hash128 hash128(ByteSpan bytes, uint64_t seed = 0);

// The same values from data that comes in pieces. Allocates nothing. One thread at a time.
class Hasher {
 public:
  explicit Hasher(uint64_t seed = 0);
  void update(ByteSpan bytes);
  // Of all bytes so far; more may follow. digest128() equals hash128() of the whole, digest64()
  // hash64().
  uint64_t digest64() const;
  Hash128 digest128() const;

 private:
  alignas(64) std::byte state_[576];  // an XXH3_state_t
};

}  // namespace perdure::base
