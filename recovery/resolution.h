#pragma once
// The commit rule of DESIGN section 5, over what the survivors told: which step is the committed
// one, who holds it, who can still get there. Pure.
//
// A step's vote needs every rank, after its reductions. So if one survivor holds the result of the
// vote for step k + 1, every survivor of that epoch has its reduced gradients: those that lack the
// result are given it and apply. If none holds it, the step is aborted and runs again.

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "parallel/model_spec.h"
#include "recovery/epoch_types.h"

namespace perdure::recovery {

struct ToldState {
  base::WorkerId worker;
  StateReport state;
};

struct Resolution {
  bool any_state = false;  // nobody holds anything: a fresh start, or all is lost
  CommittedState committed;
  std::vector<base::WorkerId> holders;  // are at committed.step
  std::vector<base::WorkerId> behind;   // one step behind, with the vote of `asked` pending
  std::optional<base::WorkerId> asked;  // can give that vote; set when `behind` is not empty
  std::vector<base::WorkerId> stale;    // hold older state that is of no use
};

Resolution resolve(const std::vector<ToldState>& told);

// What the holders of the committed step say of each tensor: by tensor id, none where nobody holds
// it. kDataLoss when two holders differ, in the scalars or in a tensor: it names them.
struct HeldDigests {
  std::vector<std::optional<uint64_t>> by_tensor;
};
base::Result<HeldDigests> agree_on_digests(const parallel::ModelSpec& model,
                                           const std::vector<ToldState>& told,
                                           const CommittedState& committed);

}  // namespace perdure::recovery
