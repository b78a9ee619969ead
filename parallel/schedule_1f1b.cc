#include <algorithm>

#include "parallel/rank_topology.h"
#include "parallel/schedule_makers.h"

namespace perdure::parallel {
namespace {

using base::MicroBatch;

// Writes one rank's list. Micro-batch i of the pipeline (counted from 0 here) lives in slot i %
// slots: backwards run in the order of forwards, so the slot is free when micro-batch i + slots
// needs it.
class StageWriter {
 public:
  StageWriter(base::Rank rank, const RankTopology& topology)
      : topology_(topology),
        slots_(std::min(topology.micro_batches(), topology.stages - topology.stage)) {
    stage_.rank = rank;
    stage_.stash_slots = slots_;
  }

  StageSchedule write() && {
    const uint32_t count = topology_.micro_batches();
    for (uint32_t i = 0; i < slots_; ++i) forward(i);
    for (uint32_t i = 0; i < count; ++i) {
      backward(i);
      if (i + slots_ < count) forward(i + slots_);
    }
    for (uint32_t b = 0; b < topology_.buckets.size(); ++b) {
      stage_.instructions.push_back(
          {.action = Action::kReduce, .micro_batch = {}, .slot = 0, .index = b});
    }
    stage_.instructions.push_back({.action = Action::kVote, .micro_batch = {}});
    stage_.instructions.push_back({.action = Action::kApply, .micro_batch = {}});
    return std::move(stage_);
  }

 private:
  void add(Action action, uint32_t i) {
    stage_.instructions.push_back({.action = action,
                                   .micro_batch = MicroBatch(topology_.micro_batch_begin + i),
                                   .slot = i % slots_});
  }
  void forward(uint32_t i) {
    if (!topology_.is_first()) add(Action::kReceiveActivation, i);
    add(Action::kForward, i);
    if (!topology_.is_last()) add(Action::kSendActivation, i);
  }
  void backward(uint32_t i) {
    if (!topology_.is_last()) add(Action::kReceiveGradient, i);
    add(Action::kBackward, i);
    if (!topology_.is_first()) add(Action::kSendGradient, i);
  }

  const RankTopology& topology_;
  const uint32_t slots_;
  StageSchedule stage_;
};

}  // namespace

Schedule make_schedule_1f1b(const ModelSpec& model, const Layout& layout) {
  const JobTopology job = make_topology(model, layout);
  Schedule schedule;
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    CHECK_GT(job.ranks[r].micro_batches(), 0u);
    schedule.stages.push_back(StageWriter(base::Rank(r), job.ranks[r]).write());
  }
  return schedule;
}

}  // namespace perdure::parallel
