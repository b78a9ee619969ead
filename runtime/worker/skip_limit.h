#pragma once
// How many steps in a row may be committed without the optimizer, because their gradients were not
// finite, before it is no accident any more. Pure.

#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "runtime/engine/model_state.h"

namespace perdure::runtime::worker {

inline constexpr uint32_t kSkippedInARowMax = 10;

class SkipLimit {
 public:
  // After so many that were skipped just before.
  explicit SkipLimit(uint32_t in_a_row = 0) : in_a_row_(in_a_row) {}

  // kDataLoss at the last step that is allowed.
  base::Status note(base::Step step, engine::Applied applied) {
    in_a_row_ = applied == engine::Applied::kYes ? 0 : in_a_row_ + 1;
    if (in_a_row_ < kSkippedInARowMax) return base::Status::ok();
    return base::data_loss("step " + std::to_string(step.value()) +
                           ": gradients were not finite in " + std::to_string(kSkippedInARowMax) +
                           " steps in a row");
  }

 private:
  uint32_t in_a_row_;
};

}  // namespace perdure::runtime::worker
