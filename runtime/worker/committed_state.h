#pragma once
// The scalars of a committed state, as the engine and as the epoch change call them.

#include "recovery/epoch_types.h"
#include "runtime/engine/tensor_store.h"

namespace perdure::runtime::worker {

inline engine::CommittedScalars scalars_of(const recovery::CommittedState& c) {
  return {.step = c.step,
          .samples_consumed = c.samples_consumed,
          .applied_steps = c.applied_steps,
          .calibrated = c.calibrated != 0,
          .skipped_in_a_row = c.skipped_in_a_row};
}

inline recovery::CommittedState committed_of(const engine::CommittedScalars& c) {
  return {.step = c.step,
          .samples_consumed = c.samples_consumed,
          .applied_steps = c.applied_steps,
          .calibrated = static_cast<uint8_t>(c.calibrated ? 1 : 0),
          .skipped_in_a_row = c.skipped_in_a_row};
}

}  // namespace perdure::runtime::worker
