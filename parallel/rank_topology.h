#pragma once
// What one rank of a layout sees around itself: neighbours in its pipeline, its micro-batches, its
// buckets by their job-wide numbers. Computed once per layout, for the checker and the simulator.

#include <cstdint>
#include <optional>
#include <vector>

#include "parallel/layout.h"

namespace perdure::parallel {

struct RankTopology {
  std::optional<base::Rank> previous;  // stage before, none for the first
  std::optional<base::Rank> next;      // stage after, none for the last
  uint32_t stage = 0;
  uint32_t stages = 0;  // of its pipeline
  uint32_t micro_batch_begin = 0;
  uint32_t micro_batch_end = 0;
  std::vector<uint32_t> buckets;  // bucket `index` of the rank is all_buckets()[buckets[index]]

  bool is_first() const { return !previous.has_value(); }
  bool is_last() const { return !next.has_value(); }
  uint32_t micro_batches() const { return micro_batch_end - micro_batch_begin; }
};

struct JobTopology {
  std::vector<RankTopology> ranks;
  std::vector<ReduceBucket> buckets;  // Layout::all_buckets

  const RankTopology& at(base::Rank rank) const;
};

// The layout must be legal (check_layout).
JobTopology make_topology(const ModelSpec& model, const Layout& layout);

}  // namespace perdure::parallel
