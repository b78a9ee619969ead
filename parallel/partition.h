#pragma once
// Cuts a list of costs into contiguous, non-empty parts such that the dearest part is as cheap as
// it can be. Exact (dynamic programming over suffixes), not a heuristic: a pipeline runs at the
// speed of its dearest stage. Of all optimal cuts it returns the lexicographically smallest, so
// that every process that plans comes to the same layout.

#include <cstdint>
#include <vector>

namespace perdure::parallel {

// Returns parts + 1 borders: part p is [borders[p], borders[p + 1]). CHECKs 1 <= parts <=
// costs.size() and that each cost is finite and not negative. O(parts * costs^2).
std::vector<uint32_t> partition_minimax(const std::vector<double>& costs, uint32_t parts);

// Cost of the dearest part.
double bottleneck(const std::vector<double>& costs, const std::vector<uint32_t>& borders);

}  // namespace perdure::parallel
