#pragma once
// A copy that knows its hashes: the data is hashed while it is in the cache, so that both cost
// little more than a copy.

#include <cstdint>

#include "base/units.h"

namespace perdure::checkpoint {

// Copies `from` to `to` (no overlap) past the cache, and gives the XXH3 of each piece of
// kPieceBytes, the last one shorter: base::hash64, as hash_pieces() of manifest.h has them. There
// is a place for each piece in `piece_hashes`. Any alignment; allocates nothing. `from` must not
// change meanwhile: the copy would not have its hash.
void copy_and_hash(base::ByteSpan from, std::byte* to, uint64_t* piece_hashes);

}  // namespace perdure::checkpoint
