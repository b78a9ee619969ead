#pragma once
// StageExecutor: runs the compute, send and receive instructions of one stage's schedule. Knows
// nothing of steps, votes and optimizers.
//
// Sends are posted and waited for when their slot is used again, or in finish(). Threads: the
// engine thread.

#include <memory>
#include <optional>
#include <vector>

#include "parallel/rank_topology.h"
#include "runtime/collective/fabric.h"
#include "runtime/engine/batch_source.h"
#include "runtime/engine/layer.h"

namespace perdure::runtime::engine {

struct ExecutorContext {
  LayerContext layers;
  const StageMemory& memory;
  GradRouter& router;
  parallel::StagePlace place;
  parallel::RankTopology topology;
  collective::Fabric& fabric;
  collective::Timeout timeout;
};

// What a run of instructions belongs to.
struct RunInfo {
  BatchSource* source = nullptr;
  uint64_t first_sample = 0;       // of micro-batch 0
  uint32_t step = 0;               // in the tags
  uint32_t tag_offset = 0;         // keeps evaluation apart from training
  uint32_t micro_batch_begin = 0;  // losses are numbered from here
};

class StageExecutor {
 public:
  explicit StageExecutor(const ExecutorContext& context);

  void begin(const RunInfo& info) {
    info_ = info;
    sample_sum_ = 0;
  }
  // Any action but kReduce, kVote and kApply.
  base::Status run(const parallel::Instruction& instruction);
  // Forward of the head's loss without gradients; follows a kForward of the same micro-batch
  // (evaluation).
  void loss_only(const parallel::Instruction& instruction);
  // Waits for all sends.
  base::Status finish();

  bool is_last() const { return c_.topology.is_last(); }
  // Sum of the marks of the samples that this rank has read since begin(), as a first stage.
  uint64_t sample_sum() const { return sample_sum_; }

 private:
  void forward(const parallel::Instruction& instruction);
  void backward_input(const parallel::Instruction& instruction);
  void backward_weight(const parallel::Instruction& instruction);
  base::Status free_slot(uint32_t slot);
  base::Status receive(base::Rank from, collective::Channel channel,
                       const parallel::Instruction& instruction, const kernels::Tensor& into);
  // Posts, and keeps the ticket for free_slot.
  base::Status send(base::Rank to, collective::Channel channel,
                    const parallel::Instruction& instruction, const kernels::Tensor& from,
                    std::optional<collective::Ticket>& ticket);
  LayerCall call(const parallel::Instruction& instruction, uint32_t layer) const;
  void load(const parallel::Instruction& instruction);

  struct SlotTraffic {
    std::optional<collective::Ticket> activation;
    std::optional<collective::Ticket> gradient;
  };

  ExecutorContext c_;
  std::vector<std::unique_ptr<Layer>> layers_;  // of the stage
  std::vector<SlotTraffic> traffic_;            // [slot]
  RunInfo info_;
  uint64_t sample_sum_ = 0;
};

}  // namespace perdure::runtime::engine
