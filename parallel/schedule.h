#pragma once
// The schedule language: the list of instructions that one stage runs in one step. Instructions of
// a stage run in order on one thread. Sends are posted and completed later (a send's memory stays
// busy until the receiver has taken it, at the latest when its stash slot is used again); a receive
// waits for its message.

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "parallel/layout.h"

namespace perdure::parallel {

enum class Action : uint8_t {
  kForward,            // F
  kBackward,           // B: input and weight gradients, layer by layer
  kBackwardInput,      // I: input gradients only
  kBackwardWeight,     // W: weight gradients only, after I of the same micro-batch
  kSendActivation,     // to the next stage
  kReceiveActivation,  // from the previous stage
  kSendGradient,       // to the previous stage
  kReceiveGradient,    // from the next stage
  kReduce,             // all-reduce bucket `index` of this rank among its holders
  kVote,               // the one all-reduce over all workers
  kApply,              // optimizer on this rank's tensors
};

struct Instruction {
  Action action = Action::kForward;
  base::MicroBatch micro_batch{};  // global index in the step; F, B, I, W, sends, receives
  uint32_t slot = 0;               // stash slot of the micro-batch, same actions
  uint32_t index = 0;              // kReduce: bucket
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct StageSchedule {
  base::Rank rank;
  std::vector<Instruction> instructions;
  uint32_t stash_slots = 0;  // micro-batches whose activations are kept at the same time, at most
  friend bool operator==(const StageSchedule&, const StageSchedule&) = default;
};

// One step of the whole job; schedules[r] is that of rank r.
struct Schedule {
  std::vector<StageSchedule> stages;
};

// "F3", "B3", "I3", "W3", "send act 3", "recv act 3", "send grad 3", "reduce 0", "vote", "apply"
std::string to_string(const Instruction& instruction);
std::string to_string(const StageSchedule& stage);

}  // namespace perdure::parallel
