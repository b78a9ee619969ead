#include "parallel/schedule.h"

namespace perdure::parallel {

std::string to_string(const Instruction& instruction) {
  const std::string micro_batch = std::to_string(instruction.micro_batch.value());
  switch (instruction.action) {
    case Action::kForward:
      return "F" + micro_batch;
    case Action::kBackward:
      return "B" + micro_batch;
    case Action::kBackwardInput:
      return "I" + micro_batch;
    case Action::kBackwardWeight:
      return "W" + micro_batch;
    case Action::kSendActivation:
      return "send act " + micro_batch;
    case Action::kReceiveActivation:
      return "recv act " + micro_batch;
    case Action::kSendGradient:
      return "send grad " + micro_batch;
    case Action::kReceiveGradient:
      return "recv grad " + micro_batch;
    case Action::kReduce:
      return "reduce " + std::to_string(instruction.index);
    case Action::kVote:
      return "vote";
    case Action::kApply:
      return "apply";
  }
  return "unknown";
}

std::string to_string(const StageSchedule& stage) {
  std::string text = "rank " + std::to_string(stage.rank.value()) + ":";
  for (size_t i = 0; i < stage.instructions.size(); ++i) {
    text += (i == 0 ? " " : ", ") + to_string(stage.instructions[i]);
  }
  return text;
}

}  // namespace perdure::parallel
