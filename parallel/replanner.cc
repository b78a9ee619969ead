#include "parallel/replanner.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "parallel/partition.h"
#include "parallel/plan_draft.h"
#include "parallel/seating.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using base::Result;
using base::Status;
using base::TensorId;
using base::WorkerId;

std::string to_megabytes(int64_t bytes) {
  const int64_t tenths = (bytes + 50'000) / 100'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MB";
}

// One call of replan().
class Planner {
 public:
  explicit Planner(const ReplanInput& input) : in_(input), model_(*input.model) {}

  Status check() const;
  Result<std::vector<ReplanOption>> plan();

 private:
  struct Priced {
    ReplanOption option;
    uint32_t kept = 0;  // workers that go on with the layers that they had
  };

  uint32_t ranks_max() const { return in_.target_pipelines * in_.target_stages; }
  uint32_t layers() const { return static_cast<uint32_t>(model_.layers.size()); }
  uint32_t depth_max() const { return std::min(in_.target_stages, layers()); }
  GrainOptions grains() const {
    return {.grains = in_.micro_batches / in_.grain, .grain = in_.grain};
  }
  Status check_state() const;
  void read_old_layout();
  bool holds_any_of(uint32_t worker, const StagePlace& stage) const;
  bool is_broken(const PipelineDraft& draft) const {
    return std::find(draft.seats.begin(), draft.seats.end(), kNobody) != draft.seats.end();
  }
  PlanDraft intact() const;
  PipelineDraft open_draft(uint32_t depth);

  void same();
  void drop();
  void recut();
  void merge();
  void fresh();
  PlanDraft near_equal(uint32_t pipelines, uint32_t ranks);

  // Gives out micro-batches, seats and prices it. Remembers the error when it cannot be.
  void offer(const char* name, PlanDraft drafts);
  uint32_t count_kept(const Layout& layout, const std::vector<uint32_t>& seats) const;
  std::string reason(const ReplanOption& option, uint32_t kept) const;
  std::vector<ReplanOption> best_first();

  const ReplanInput& in_;
  const ModelSpec& model_;
  PlanDraft old_;                      // seats of those who are still there with state
  std::vector<StagePlace> old_place_;  // by worker index; an empty range: it had none
  std::map<uint32_t, std::vector<uint32_t>> borders_;  // by depth
  std::vector<Priced> options_;
  Status error_ = base::resource_exhausted("no layout fits the workers that are left");
};

Status Planner::check() const {
  CHECK_EQ(in_.layer_cost.size(), model_.layers.size());
  CHECK_EQ(in_.old_workers.size(), static_cast<size_t>(in_.old_layout.ranks()));
  if (in_.target_pipelines == 0 || in_.target_stages == 0 || in_.grain == 0 ||
      in_.micro_batches == 0 || in_.micro_batches % in_.grain != 0) {
    return base::invalid_argument(
        "replan: target and grain must be at least 1, and micro_batches (" +
        std::to_string(in_.micro_batches) + ") a multiple of grain (" + std::to_string(in_.grain) +
        ")");
  }
  if (in_.workers.empty()) return base::resource_exhausted("no worker is left to train");
  for (size_t w = 1; w < in_.workers.size(); ++w) {
    CHECK_LT(in_.workers[w - 1].worker.value(), in_.workers[w].worker.value());
  }
  return check_state();
}

Status Planner::check_state() const {
  if (in_.from_seed) return Status::ok();
  std::vector<bool> is_gone(model_.tensors.size(), true);
  for (const ReplanWorker& worker : in_.workers) {
    for (const TensorId tensor : worker.held) {
      CHECK_LT(tensor.value(), is_gone.size());
      is_gone[tensor.value()] = false;
    }
  }
  return state_is_gone(model_, is_gone);
}

bool Planner::holds_any_of(uint32_t worker, const StagePlace& stage) const {
  if (in_.from_seed) return true;
  const std::vector<TensorId>& held = in_.workers[worker].held;
  for (uint32_t l = stage.layer_begin; l < stage.layer_end; ++l) {
    for (const TensorUseInLayer& use : model_.layers[l].tensors) {
      if (std::binary_search(held.begin(), held.end(), use.tensor)) return true;
    }
  }
  return false;
}

void Planner::read_old_layout() {
  old_place_.resize(in_.workers.size());
  for (const PipelinePlace& pipeline : in_.old_layout.pipelines) {
    PipelineDraft draft{.borders = {0}, .seats = {}};
    for (const StagePlace& stage : pipeline.stages) {
      const WorkerId id = in_.old_workers[stage.rank.value()];
      const auto found = std::lower_bound(
          in_.workers.begin(), in_.workers.end(), id,
          [](const ReplanWorker& worker, WorkerId value) { return worker.worker < value; });
      uint32_t seat = kNobody;
      if (found != in_.workers.end() && found->worker == id) {
        const uint32_t worker = static_cast<uint32_t>(found - in_.workers.begin());
        old_place_[worker] = stage;
        if (holds_any_of(worker, stage)) seat = worker;
      }
      draft.borders.push_back(stage.layer_end);
      draft.seats.push_back(seat);
    }
    old_.push_back(std::move(draft));
  }
}

PlanDraft Planner::intact() const {
  PlanDraft drafts;
  for (const PipelineDraft& draft : old_) {
    if (!is_broken(draft)) drafts.push_back(draft);
  }
  return drafts;
}

PipelineDraft Planner::open_draft(uint32_t depth) {
  std::vector<uint32_t>& borders = borders_[depth];
  if (borders.empty()) borders = partition_minimax(in_.layer_cost, depth);
  return {.borders = borders, .seats = std::vector<uint32_t>(depth, kNobody)};
}

void Planner::same() {
  if (old_.empty() || count_seats(old_) > in_.workers.size()) return;
  offer("same", old_);
}

void Planner::drop() {
  PlanDraft drafts = intact();
  if (drafts.empty() || drafts.size() == old_.size()) return;
  offer("drop", std::move(drafts));
}

// Workers without a seat join the shallowest of the broken pipelines, one by one.
void Planner::recut() {
  std::vector<uint32_t> depth(old_.size());
  uint32_t used = 0;
  for (size_t p = 0; p < old_.size(); ++p) {
    depth[p] =
        static_cast<uint32_t>(old_[p].seats.size()) -
        static_cast<uint32_t>(std::count(old_[p].seats.begin(), old_[p].seats.end(), kNobody));
    used += depth[p];
  }
  const uint32_t limit = std::min(static_cast<uint32_t>(in_.workers.size()), ranks_max());
  if (old_.empty() || used == 0 || used > limit) return;
  std::vector<std::pair<uint32_t, size_t>> heap;  // depth, pipeline; of those that may grow
  for (size_t p = 0; p < old_.size(); ++p) {
    if (depth[p] > 0 && is_broken(old_[p])) heap.emplace_back(depth[p], p);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (used < limit && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const size_t p = heap.back().second;
    ++depth[p];
    ++used;
    heap.back().first = depth[p];
    if (depth[p] == old_[p].seats.size()) {
      heap.pop_back();
    } else {
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
  PlanDraft drafts;
  for (size_t p = 0; p < old_.size(); ++p) {
    if (depth[p] == 0) continue;
    const bool is_whole = depth[p] == old_[p].seats.size();
    drafts.push_back(is_whole ? old_[p] : open_draft(depth[p]));
  }
  offer("recut", std::move(drafts));
}

void Planner::merge() {
  if (old_.empty()) return;
  PlanDraft drafts = intact();
  const uint32_t taken = count_seats(drafts);
  if (taken >= ranks_max()) return;
  const uint32_t pool = std::min(static_cast<uint32_t>(in_.workers.size()), ranks_max()) - taken;
  if (pool == 0) return;
  const uint32_t count = std::max(pool / depth_max(), 1u);
  for (uint32_t i = 0; i < count; ++i) drafts.push_back(open_draft(std::min(pool, depth_max())));
  offer("merge", std::move(drafts));
}

PlanDraft Planner::near_equal(uint32_t pipelines, uint32_t ranks) {
  PlanDraft drafts;
  for (uint32_t p = 0; p < pipelines; ++p) {
    const uint32_t depth = ranks / pipelines + (p < ranks % pipelines ? 1 : 0);
    drafts.push_back(open_draft(std::min(depth, layers())));
  }
  return drafts;
}

// With all workers of the target this is the target's shape. With fewer there may be as many
// pipelines as before, or as deep ones: the faster wins.
void Planner::fresh() {
  const uint32_t ranks = std::min(static_cast<uint32_t>(in_.workers.size()), ranks_max());
  const uint32_t most = std::min({in_.target_pipelines, ranks, grains().grains});
  PlanDraft best;
  double cost_best = 0.0;
  for (const uint32_t pipelines :
       {most, (ranks + in_.target_stages - 1) / in_.target_stages, ranks / in_.target_stages}) {
    if (pipelines == 0 || pipelines > most) continue;
    PlanDraft drafts = near_equal(pipelines, ranks);
    const std::vector<uint32_t> spread = spread_grains(drafts, grains(), in_.layer_cost);
    const double cost = step_cost(drafts, spread, in_.grain, in_.layer_cost);
    if (!best.empty() && cost >= cost_best) continue;
    cost_best = cost;
    best = std::move(drafts);
  }
  // Pipelines that are what they were keep their people.
  for (size_t p = 0; p < std::min(best.size(), old_.size()); ++p) {
    if (best[p].borders == old_[p].borders) best[p].seats = old_[p].seats;
  }
  offer("fresh", std::move(best));
}

void Planner::offer(const char* name, PlanDraft drafts) {
  if (count_seats(drafts) > ranks_max()) return;
  const std::vector<uint32_t> spread = spread_grains(drafts, grains(), in_.layer_cost);
  Priced priced;
  ReplanOption& option = priced.option;
  option.name = name;
  option.layout = to_layout(drafts, spread, in_.grain);
  const Status status = check_layout(model_, option.layout);
  CHECK(status.is_ok()) << status;
  for (const Priced& other : options_) {
    if (is_same_layout(other.option.layout, option.layout)) return;
  }
  std::vector<uint32_t> seats;
  for (const PipelineDraft& draft : drafts) {
    seats.insert(seats.end(), draft.seats.begin(), draft.seats.end());
  }
  fill_seats(model_, option.layout, in_.workers,
             in_.from_seed ? HeldState::kIgnored : HeldState::kMatters, seats);
  std::vector<std::span<const TensorId>> held;
  for (const uint32_t worker : seats) {
    option.workers.push_back(in_.workers[worker].worker);
    held.emplace_back(in_.workers[worker].held);
  }
  if (!in_.from_seed) {
    Result<TransferPlan> transfer = make_transfer_plan(model_, option.layout, std::span(held));
    if (!transfer.is_ok()) {
      error_ = transfer.status();
      return;
    }
    option.transfer = std::move(transfer).value();
  }
  option.step_seconds = step_cost(drafts, spread, in_.grain, in_.layer_cost) * in_.seconds_per_cost;
  option.pause_seconds =
      static_cast<double>(option.transfer.busiest_rank_bytes) / in_.bytes_per_second;
  priced.kept = count_kept(option.layout, seats);
  option.reason = reason(option, priced.kept);
  options_.push_back(std::move(priced));
}

uint32_t Planner::count_kept(const Layout& layout, const std::vector<uint32_t>& seats) const {
  uint32_t kept = 0;
  for (const PipelinePlace& pipeline : layout.pipelines) {
    for (const StagePlace& stage : pipeline.stages) {
      const StagePlace& old = old_place_[seats[stage.rank.value()]];
      if (old.layer_begin == stage.layer_begin && old.layer_end == stage.layer_end) ++kept;
    }
  }
  return kept;
}

std::string Planner::reason(const ReplanOption& option, uint32_t kept) const {
  std::string depths;
  const size_t pipelines = option.layout.pipelines.size();
  constexpr size_t kDepthsShown = 8;
  for (size_t p = 0; p < std::min(pipelines, kDepthsShown); ++p) {
    depths += (p == 0 ? "" : "+") + std::to_string(option.layout.pipelines[p].stages.size());
  }
  if (pipelines > kDepthsShown) depths += "+...";
  const size_t idle = in_.workers.size() - option.workers.size();
  return std::to_string(pipelines) + (pipelines == 1 ? " pipeline (" : " pipelines (") + depths +
         " stages), " + std::to_string(kept) + " of " + std::to_string(option.workers.size()) +
         " keep their layers, " + to_megabytes(option.transfer.bytes) + " to move, " +
         std::to_string(idle) + " stand by";
}

// Times within 2 % of the best of those that are left count as equal to it.
std::vector<ReplanOption> Planner::best_first() {
  constexpr double kEqual = 1.02;
  std::sort(options_.begin(), options_.end(), [](const Priced& a, const Priced& b) {
    return a.option.step_seconds < b.option.step_seconds;
  });
  std::vector<ReplanOption> result;
  for (auto begin = options_.begin(), end = begin; begin != options_.end(); begin = end) {
    const double limit = begin->option.step_seconds * kEqual;
    while (end != options_.end() && end->option.step_seconds <= limit) ++end;
    std::sort(begin, end, [](const Priced& a, const Priced& b) {
      return std::tie(a.option.pause_seconds, b.kept, a.option.name) <
             std::tie(b.option.pause_seconds, a.kept, b.option.name);
    });
    for (auto it = begin; it != end; ++it) result.push_back(std::move(it->option));
  }
  return result;
}

Result<std::vector<ReplanOption>> Planner::plan() {
  read_old_layout();
  same();
  drop();
  recut();
  merge();
  fresh();
  if (options_.empty()) return error_;
  return best_first();
}

}  // namespace

Result<std::vector<ReplanOption>> replan(const ReplanInput& input) {
  CHECK(input.model != nullptr);
  Planner planner(input);
  RETURN_IF_ERROR(planner.check());
  return planner.plan();
}

}  // namespace perdure::parallel
