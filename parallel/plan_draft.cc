#include "parallel/plan_draft.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "parallel/partition.h"

namespace perdure::parallel {
namespace {

constexpr double kCostMin = 1e-300;  // a stage may cost nothing; its speed stays finite

std::vector<double> dearest_stages(const PlanDraft& draft, const std::vector<double>& layer_cost) {
  std::map<std::vector<uint32_t>, double> known;
  std::vector<double> dearest;
  for (const PipelineDraft& pipeline : draft) {
    const auto [found, is_new] = known.try_emplace(pipeline.borders);
    if (is_new) found->second = std::max(bottleneck(layer_cost, pipeline.borders), kCostMin);
    dearest.push_back(found->second);
  }
  return dearest;
}

// What the micro-batches after the first add to the time of a pipeline.
double further_cost(uint32_t grains, uint32_t grain, double dearest) {
  return (static_cast<double>(grains) * grain - 1.0) * dearest;
}

// A number of grains for each pipeline that is at most what it gets in the end: saves nearly all
// of the work of giving them out one by one.
std::vector<uint32_t> sure_grains(const std::vector<double>& dearest, const GrainOptions& o) {
  double speed = 0.0;
  for (const double d : dearest) speed += 1.0 / d;
  const double micro_batches = static_cast<double>(o.grains) * o.grain;
  const double level = (micro_batches - static_cast<double>(dearest.size())) / speed;
  std::vector<uint32_t> sure;
  for (const double d : dearest) {
    const double share = std::floor((level / d + 1.0) / o.grain) - 1.0;
    sure.push_back(share > 0.0 ? static_cast<uint32_t>(share) : 0);
  }
  return sure;
}

}  // namespace

uint32_t count_seats(const PlanDraft& draft) {
  size_t count = 0;
  for (const PipelineDraft& pipeline : draft) count += pipeline.seats.size();
  return static_cast<uint32_t>(count);
}

std::vector<uint32_t> spread_grains(PlanDraft& draft, const GrainOptions& options,
                                    const std::vector<double>& layer_cost) {
  CHECK(!draft.empty());
  const std::vector<double> dearest = dearest_stages(draft, layer_cost);
  std::vector<uint32_t> grains = sure_grains(dearest, options);
  std::vector<std::pair<double, size_t>> heap;  // the pipeline that ends first with one grain more
  for (size_t p = 0; p < dearest.size(); ++p) {
    heap.emplace_back(further_cost(grains[p] + 1, options.grain, dearest[p]), p);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  uint32_t given = std::accumulate(grains.begin(), grains.end(), 0u);
  CHECK_LE(given, options.grains);
  for (; given < options.grains; ++given) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const size_t p = heap.back().second;
    ++grains[p];
    heap.back().first = further_cost(grains[p] + 1, options.grain, dearest[p]);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  size_t used = 0;
  for (size_t p = 0; p < dearest.size(); ++p) {
    if (grains[p] == 0) continue;
    if (used != p) draft[used] = std::move(draft[p]);
    grains[used++] = grains[p];
  }
  draft.resize(used);
  grains.resize(used);
  return grains;
}

double step_cost(const PlanDraft& draft, const std::vector<uint32_t>& grains, uint32_t grain,
                 const std::vector<double>& layer_cost) {
  const std::vector<double> dearest = dearest_stages(draft, layer_cost);
  double slowest = 0.0;
  for (size_t p = 0; p < draft.size(); ++p) {
    slowest = std::max(slowest, further_cost(grains[p], grain, dearest[p]));
  }
  return std::accumulate(layer_cost.begin(), layer_cost.end(), 0.0) + slowest;
}

Layout to_layout(const PlanDraft& draft, const std::vector<uint32_t>& grains, uint32_t grain) {
  Layout layout;
  uint32_t rank = 0;
  for (size_t p = 0; p < draft.size(); ++p) {
    PipelinePlace place;
    const std::vector<uint32_t>& borders = draft[p].borders;
    for (size_t s = 0; s + 1 < borders.size(); ++s) {
      place.stages.push_back({base::Rank(rank++), borders[s], borders[s + 1]});
    }
    place.micro_batch_begin = layout.micro_batches;
    layout.micro_batches += grains[p] * grain;
    place.micro_batch_end = layout.micro_batches;
    layout.pipelines.push_back(std::move(place));
  }
  return layout;
}

bool is_same_layout(const Layout& a, const Layout& b) {
  const auto same_stage = [](const StagePlace& x, const StagePlace& y) {
    return std::tie(x.rank, x.layer_begin, x.layer_end) ==
           std::tie(y.rank, y.layer_begin, y.layer_end);
  };
  const auto same_pipeline = [&same_stage](const PipelinePlace& x, const PipelinePlace& y) {
    return x.micro_batch_begin == y.micro_batch_begin && x.micro_batch_end == y.micro_batch_end &&
           std::equal(x.stages.begin(), x.stages.end(), y.stages.begin(), y.stages.end(),
                      same_stage);
  };
  return a.micro_batches == b.micro_batches &&
         std::equal(a.pipelines.begin(), a.pipelines.end(), b.pipelines.begin(), b.pipelines.end(),
                    same_pipeline);
}

}  // namespace perdure::parallel
