#pragma once
// Strong integer ids. A Rank is a position in a layout, not a process; a StageId counts inside one
// pipeline. They compare, print and hash, but do not add up or convert: value() says that you mean
// the number.

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace perdure::base {

template <typename Tag, typename Int>
class StrongId {
 public:
  using Integer = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  constexpr StrongId next() const { return StrongId(static_cast<Int>(value_ + 1)); }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;
  friend std::ostream& operator<<(std::ostream& out, StrongId id) { return out << +id.value_; }

 private:
  Int value_ = 0;
};

using NodeId = StrongId<struct NodeIdTag, uint32_t>;          // a failure domain
using WorkerId = StrongId<struct WorkerIdTag, uint32_t>;      // one process driving one device
using Rank = StrongId<struct RankTag, uint32_t>;              // a position in a layout
using PipelineId = StrongId<struct PipelineIdTag, uint32_t>;  // one full replica of the model
using StageId = StrongId<struct StageIdTag, uint32_t>;        // position inside a pipeline
using LayerId = StrongId<struct LayerIdTag, uint32_t>;        // index in the model's list of layers
using TensorId = StrongId<struct TensorIdTag, uint32_t>;  // index in the model's list of parameters
using MicroBatch =
    StrongId<struct MicroBatchTag, uint32_t>;       // index inside one step, counted over the job
using Epoch = StrongId<struct EpochTag, uint64_t>;  // numbered agreement on members and plan
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;
using Step = StrongId<struct StepTag, uint64_t>;  // optimizer steps committed so far

}  // namespace perdure::base

template <typename Tag, typename Int>
struct std::hash<perdure::base::StrongId<Tag, Int>> {
  size_t operator()(perdure::base::StrongId<Tag, Int> id) const noexcept {
    return std::hash<Int>()(id.value());
  }
};
