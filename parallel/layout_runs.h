#pragma once
// A layout in short: most pipelines of a large job are cut alike, and are told as one.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "parallel/layout.h"

namespace perdure::parallel {

// `count` pipelines in a row: each has the layers of the one before, and its ranks and
// micro-batches follow on.
struct PipelineRun {
  PipelinePlace first;
  uint32_t count = 0;
};

struct LayoutRuns {
  std::vector<PipelineRun> runs;
  // kDataLoss when it stands for more than can be meant.
  base::Status check() const;
};

// Any list of pipelines, legal or not; pipelines_of gives it back.
LayoutRuns runs_of(const std::vector<PipelinePlace>& pipelines);
// `runs` has passed its check().
std::vector<PipelinePlace> pipelines_of(const LayoutRuns& runs);

}  // namespace perdure::parallel
