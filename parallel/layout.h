#pragma once
// Layout: who computes which layers on which micro-batches. Pipelines may be unequal: each has
// stages and layer ranges of its own. Ranks are numbered pipeline by pipeline, stage by stage.

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "parallel/model_spec.h"

namespace perdure::parallel {

struct StagePlace {
  base::Rank rank;
  uint32_t layer_begin = 0;  // layers [begin, end) of ModelSpec::layers
  uint32_t layer_end = 0;
};

struct PipelinePlace {
  std::vector<StagePlace> stages;
  uint32_t micro_batch_begin = 0;  // it computes micro-batches [begin, end) of every step
  uint32_t micro_batch_end = 0;
};

struct RankPlace {
  base::PipelineId pipeline;
  base::StageId stage;
};

// Tensors whose gradients are reduced together: same holders, neighbours in gradient memory.
struct ReduceBucket {
  std::vector<base::TensorId> tensors;  // ascending
  std::vector<base::Rank> holders;      // ascending; a bucket with one holder needs no reduction
};

struct Layout {
  std::vector<PipelinePlace> pipelines;
  uint32_t micro_batches = 0;  // per step, over the whole job

  uint32_t ranks() const;
  RankPlace place(base::Rank rank) const;
  const StagePlace& stage(base::Rank rank) const;
  const PipelinePlace& pipeline(base::Rank rank) const;

  // Tensors that the rank holds, ascending and once each.
  std::vector<base::TensorId> tensors(const ModelSpec& model, base::Rank rank) const;
  std::vector<base::Rank> holders(const ModelSpec& model, base::TensorId tensor) const;
  // The holder that speaks for a tensor in the vote: the lowest rank.
  base::Rank speaker(const ModelSpec& model, base::TensorId tensor) const;
  // Buckets of a rank in the order in which backward completes them: last layers first. All holders
  // of a bucket list the same tensors, and any two ranks list their common buckets in the same
  // order (else their reductions could wait for each other).
  // Neighbouring layers with the same holders share a bucket, so each is as large as it can be.
  std::vector<ReduceBucket> buckets(const ModelSpec& model, base::Rank rank) const;
  // Every bucket of the job, in the one order of which each rank's list is a part.
  std::vector<ReduceBucket> all_buckets(const ModelSpec& model) const;
};

struct LayoutOptions {
  uint32_t pipelines = 1;
  uint32_t stages = 1;
  uint32_t micro_batches = 1;
  uint32_t grain = 1;  // consecutive micro-batches that stay together; micro_batches % grain == 0
};

// Cuts the layers into stages by the exact minimax partition of the cost model, and the
// micro-batches into contiguous ranges that differ by at most one grain, the first pipelines
// getting the larger ones.
// kInvalidArgument: a zero, fewer layers than stages, fewer grains than pipelines, or micro_batches
// not a multiple of grain. layer_cost has one finite cost >= 0 per layer (else CHECK).
base::Result<Layout> make_layout(const ModelSpec& model, const LayoutOptions& options,
                                 const std::vector<double>& layer_cost);

// Every layer of every pipeline once and in order, no stage empty, every micro-batch once, ranks
// 0..n-1 once and in order. kInvalidArgument names the pipeline and the stage.
base::Status check_layout(const ModelSpec& model, const Layout& layout);

}  // namespace perdure::parallel
