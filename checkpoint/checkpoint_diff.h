#pragma once
// What differs between two checkpoints, as far as their manifests tell. Pure: no file is read, so
// two checkpoints of a terabyte are compared in milliseconds. Bits are compared, not values.

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace perdure::checkpoint {

struct TensorDifference {
  enum class Kind {
    kOnlyInFirst,
    kOnlyInSecond,
    kType,
    kShape,
    kTied,     // an alias in one only, or of another tensor; its content is compared too
    kContent,  // some pieces differ
    kUnknown,  // cut in another way, and where it is cut alike nothing differs
  };
  Kind kind = Kind::kContent;
  std::string tensor;
  std::string text;              // "BF16 and F32"; for people
  uint64_t differing_bytes = 0;  // kContent: of the pieces that differ, at most

  friend bool operator==(const TensorDifference&, const TensorDifference&) = default;
};

struct ManifestDifference {
  std::vector<TensorDifference> tensors;  // ascending by name
  uint64_t equal_tensors = 0;             // to the last bit
};

// Both are consistent (check_manifest). Files, nodes and counters are not compared: the same state
// may lie in other files.
ManifestDifference diff_manifests(const Manifest& first, const Manifest& second);

std::string to_string(const TensorDifference& difference);  // "w: type: BF16 and F32"

}  // namespace perdure::checkpoint
