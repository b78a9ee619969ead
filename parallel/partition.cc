#include "parallel/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace perdure::parallel {
namespace {

// Cost of any part as a difference of prefix sums: one definition for the search and for the
// result, so that ties are ties to the bit.
class PrefixSums {
 public:
  explicit PrefixSums(const std::vector<double>& costs) : sums_(costs.size() + 1, 0.0) {
    for (size_t i = 0; i < costs.size(); ++i) {
      CHECK(std::isfinite(costs[i]) && costs[i] >= 0.0) << "cost " << i << " is " << costs[i];
      sums_[i + 1] = sums_[i] + costs[i];
    }
  }
  double part(size_t begin, size_t end) const { return sums_[end] - sums_[begin]; }

 private:
  std::vector<double> sums_;
};

}  // namespace

std::vector<uint32_t> partition_minimax(const std::vector<double>& costs, uint32_t parts) {
  const size_t n = costs.size();
  CHECK_GE(parts, 1u);
  CHECK_LE(parts, n);
  const PrefixSums sums(costs);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();

  // best[k][i]: least bottleneck of the items [i, n) in k + 1 parts; infinite where there are too
  // few.
  std::vector<std::vector<double>> best(parts, std::vector<double>(n + 1, kInfinity));
  for (size_t i = 0; i < n; ++i) best[0][i] = sums.part(i, n);
  for (uint32_t k = 1; k < parts; ++k) {
    for (size_t i = 0; i + k < n; ++i) {
      for (size_t cut = i + 1; cut + k <= n; ++cut) {
        const double first = sums.part(i, cut);
        best[k][i] = std::min(best[k][i], std::max(first, best[k - 1][cut]));
        if (first >= best[k][i]) break;  // a longer first part only costs more
      }
    }
  }

  const double least = best[parts - 1][0];
  std::vector<uint32_t> borders{0};
  for (uint32_t k = parts - 1; k > 0; --k) {
    size_t cut = borders.back() + 1;
    while (std::max(sums.part(borders.back(), cut), best[k - 1][cut]) > least) ++cut;
    CHECK_LT(cut, n);
    borders.push_back(static_cast<uint32_t>(cut));
  }
  borders.push_back(static_cast<uint32_t>(n));
  CHECK_EQ(borders.size(), static_cast<size_t>(parts) + 1);
  return borders;
}

double bottleneck(const std::vector<double>& costs, const std::vector<uint32_t>& borders) {
  CHECK_GE(borders.size(), 2u);
  CHECK_EQ(borders.back(), costs.size());
  const PrefixSums sums(costs);
  double worst = 0.0;
  for (size_t p = 0; p + 1 < borders.size(); ++p) {
    worst = std::max(worst, sums.part(borders[p], borders[p + 1]));
  }
  return worst;
}

}  // namespace perdure::parallel
