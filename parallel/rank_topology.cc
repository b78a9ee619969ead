#include "parallel/rank_topology.h"

namespace perdure::parallel {

const RankTopology& JobTopology::at(base::Rank rank) const {
  CHECK_LT(rank.value(), ranks.size());
  return ranks[rank.value()];
}

JobTopology make_topology(const ModelSpec& model, const Layout& layout) {
  JobTopology job;
  job.ranks.resize(layout.ranks());
  job.buckets = layout.all_buckets(model);
  for (const PipelinePlace& pipeline : layout.pipelines) {
    const size_t stages = pipeline.stages.size();
    for (size_t s = 0; s < stages; ++s) {
      CHECK_LT(pipeline.stages[s].rank.value(), job.ranks.size());
      RankTopology& rank = job.ranks[pipeline.stages[s].rank.value()];
      if (s > 0) rank.previous = pipeline.stages[s - 1].rank;
      if (s + 1 < stages) rank.next = pipeline.stages[s + 1].rank;
      rank.stage = static_cast<uint32_t>(s);
      rank.stages = static_cast<uint32_t>(stages);
      rank.micro_batch_begin = pipeline.micro_batch_begin;
      rank.micro_batch_end = pipeline.micro_batch_end;
    }
  }
  for (uint32_t b = 0; b < job.buckets.size(); ++b) {
    for (const base::Rank holder : job.buckets[b].holders) {
      job.ranks[holder.value()].buckets.push_back(b);
    }
  }
  return job;
}

}  // namespace perdure::parallel
