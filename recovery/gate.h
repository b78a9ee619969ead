#pragma once
// The gate of DESIGN section 6: nothing runs before the new layout is proved to hold the old state.
// Pure.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "parallel/model_spec.h"
#include "recovery/epoch_types.h"
#include "recovery/resolution.h"

namespace perdure::recovery {

// What one member says after it has loaded.
struct LoadedReport {
  CommittedState committed;
  std::vector<TensorDigest> tensors;  // ascending
};

struct GateResult {
  base::Status status;                // ok: go
  std::optional<base::Rank> culprit;  // whose state is wrong, when that can be said
};

// Every rank holds exactly the tensors of its stage, each tensor has exactly its declared holders
// with one digest, which is the one from before the change (`before`; nothing is known of it after
// a start from the seed), and step, cursor and optimizer count are those of the plan.
GateResult check_gate(const parallel::ModelSpec& model, const EpochPlan& plan,
                      const std::vector<LoadedReport>& by_rank, const HeldDigests& before);

}  // namespace perdure::recovery
