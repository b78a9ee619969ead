#pragma once
// The fault points of a step (base/fault_point.h), in the order in which every rank comes by. When
// a step begins, base::fault_time.step is set to its number: committed steps + 1.
//
// An error given at a point that can fail is what a broken fabric would have given there: the
// attempt is left, the committed state stays.

#include <string_view>

namespace perdure::runtime::engine {

// Once per step. Can fail.
inline constexpr std::string_view kStepBegin = "step.begin";
// Once per attempt: after the first forward. Can fail.
inline constexpr std::string_view kStepCompute = "step.compute";
// Once per attempt: before the first reduction. Can fail.
inline constexpr std::string_view kStepReduce = "step.reduce";
// Once per attempt: all reductions are done, the own vote is not out yet: the step is pending. Can
// fail.
inline constexpr std::string_view kStepVote = "step.vote";
// Once per attempt: the vote's result is there, nothing of it is used. An error here loses the
// result: the step stays pending, as when a peer dies during the exchange.
inline constexpr std::string_view kStepVoted = "step.voted";
// About half of the tensors are updated. Nothing can fail any more. Not reached by a step that is
// committed without the optimizer.
inline constexpr std::string_view kStepApply = "step.apply";
// The step is committed.
inline constexpr std::string_view kStepCommit = "step.commit";
// In an evaluation, before its result is exchanged. Can fail.
inline constexpr std::string_view kStepEvaluate = "step.evaluate";

}  // namespace perdure::runtime::engine
