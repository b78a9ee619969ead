#include "parallel/layout_runs.h"

#include <algorithm>
#include <string>

namespace perdure::parallel {
namespace {

constexpr uint64_t kStagesMax = 1 << 16;  // as many ranks as a fabric can tell apart

// The pipeline that stands `index` places behind the first of a run.
PipelinePlace place_in(const PipelinePlace& first, uint32_t index) {
  PipelinePlace place = first;
  const auto stages = static_cast<uint32_t>(first.stages.size());
  const uint32_t micro_batches = first.micro_batch_end - first.micro_batch_begin;
  for (StagePlace& stage : place.stages)
    stage.rank = base::Rank(stage.rank.value() + index * stages);
  place.micro_batch_begin += index * micro_batches;
  place.micro_batch_end += index * micro_batches;
  return place;
}

// Without making the pipeline that `next` would be.
bool continues(const PipelineRun& run, const PipelinePlace& next) {
  const PipelinePlace& first = run.first;
  const uint32_t micro_batches = first.micro_batch_end - first.micro_batch_begin;
  if (next.stages.size() != first.stages.size() ||
      next.micro_batch_begin != first.micro_batch_begin + run.count * micro_batches ||
      next.micro_batch_end != first.micro_batch_end + run.count * micro_batches)
    return false;
  const uint32_t shift = run.count * static_cast<uint32_t>(first.stages.size());
  for (size_t s = 0; s < first.stages.size(); ++s) {
    const StagePlace& a = first.stages[s];
    const StagePlace& b = next.stages[s];
    if (b.rank.value() != a.rank.value() + shift || b.layer_begin != a.layer_begin ||
        b.layer_end != a.layer_end)
      return false;
  }
  return true;
}

}  // namespace

base::Status LayoutRuns::check() const {
  uint64_t stages = 0;
  for (const PipelineRun& run : runs) {
    stages += uint64_t{run.count} * std::max<size_t>(run.first.stages.size(), 1);
    if (stages > kStagesMax)
      return base::data_loss("a layout of more than " + std::to_string(kStagesMax) + " stages");
  }
  return base::Status::ok();
}

LayoutRuns runs_of(const std::vector<PipelinePlace>& pipelines) {
  LayoutRuns result;
  for (const PipelinePlace& pipeline : pipelines) {
    if (!result.runs.empty() && continues(result.runs.back(), pipeline)) {
      ++result.runs.back().count;
    } else {
      result.runs.push_back({pipeline, 1});
    }
  }
  return result;
}

std::vector<PipelinePlace> pipelines_of(const LayoutRuns& runs) {
  std::vector<PipelinePlace> pipelines;
  for (const PipelineRun& run : runs.runs) {
    for (uint32_t i = 0; i < run.count; ++i) pipelines.push_back(place_in(run.first, i));
  }
  return pipelines;
}

}  // namespace perdure::parallel
