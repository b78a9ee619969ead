#pragma once
// PlanDraft: the pipelines that a layout may get, before micro-batches, ranks and prices. Pure.

#include <cstdint>
#include <vector>

#include "parallel/layout.h"

namespace perdure::parallel {

struct PipelineDraft {
  std::vector<uint32_t> borders;  // stage s has layers [borders[s], borders[s + 1])
  std::vector<uint32_t> seats;    // by stage: index of a worker, or kNobody (parallel/seating.h)
};

using PlanDraft = std::vector<PipelineDraft>;

uint32_t count_seats(const PlanDraft& draft);

struct GrainOptions {
  uint32_t grains = 1;
  uint32_t grain = 1;  // micro-batches in one
};

// Hands out whole grains so that the slowest pipeline is as fast as it can be. A pipeline that gets
// none, because there are too few or because it would only slow the step down, is taken out of the
// draft. Result: grains of each pipeline that is left.
std::vector<uint32_t> spread_grains(PlanDraft& draft, const GrainOptions& options,
                                    const std::vector<double>& layer_cost);

// A step of the slowest pipeline, in units of layer_cost: its first micro-batch passes all stages,
// each further one comes out a dearest stage later.
double step_cost(const PlanDraft& draft, const std::vector<uint32_t>& grains, uint32_t grain,
                 const std::vector<double>& layer_cost);

Layout to_layout(const PlanDraft& draft, const std::vector<uint32_t>& grains, uint32_t grain);

bool is_same_layout(const Layout& a, const Layout& b);

}  // namespace perdure::parallel
