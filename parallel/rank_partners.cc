#include "parallel/rank_partners.h"

#include <algorithm>
#include <bit>

namespace perdure::parallel {

std::vector<std::vector<base::Rank>> rank_partners(const ModelSpec& model, const Layout& layout,
                                                   const std::vector<TensorMove>& moves) {
  const uint32_t n = layout.ranks();
  std::vector<std::vector<base::Rank>> partners(n);
  const auto link = [&partners](base::Rank a, base::Rank b) {
    if (a == b) return;
    partners[a.value()].push_back(b);
    partners[b.value()].push_back(a);
  };
  for (const PipelinePlace& pipeline : layout.pipelines) {
    for (size_t s = 0; s + 1 < pipeline.stages.size(); ++s)
      link(pipeline.stages[s].rank, pipeline.stages[s + 1].rank);
  }
  for (const ReduceBucket& bucket : layout.all_buckets(model)) {
    for (size_t h = 0; h < bucket.holders.size(); ++h)
      link(bucket.holders[h], bucket.holders[(h + 1) % bucket.holders.size()]);
  }
  // Recursive doubling among the lower power of two; each of the others has one partner there.
  const uint32_t doubling = std::bit_floor(n);
  for (uint32_t r = 0; r < n; ++r) {
    if (r >= doubling) link(base::Rank(r), base::Rank(r - doubling));
    for (uint32_t distance = 1; r < doubling && distance < doubling; distance *= 2)
      if ((r & distance) == 0) link(base::Rank(r), base::Rank(r | distance));
  }
  for (const TensorMove& move : moves) link(move.from, move.to);
  for (std::vector<base::Rank>& list : partners) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
  return partners;
}

}  // namespace perdure::parallel
