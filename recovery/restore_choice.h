#pragma once
// When no live worker has a part of the state any more: which older or equal state all sources
// together can give, and who brings what back. Pure.
//
//   worker 0  live, step 8: A B        in memory, step 7: A B
//   worker 1  fresh process            in memory, step 7: C D   step 6: C D
//   choice    step 7: worker 0 reads A B, worker 1 reads C D; step 8 is run again
//
// The newest such step wins, whatever it costs to read. What is live at that step is not read.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "parallel/model_spec.h"
#include "recovery/resolution.h"

namespace perdure::recovery {

struct RestoreChoice {
  CommittedState target;
  // Each tensor that nobody holds live is read once, by a worker that offers it from the nearest
  // tier; of several, by the one that has the least to read. Ascending by tensor.
  std::map<base::WorkerId, std::vector<TensorDigest>> loads;
  size_t live = 0;  // tensors that need not be read
};

// `only`: no other step will do. None: no step is whole.
std::optional<RestoreChoice> choose_restore(const parallel::ModelSpec& model,
                                            const std::vector<ToldState>& told,
                                            std::optional<base::Step> only);

// For a person: "step 7: 3 of 40 tensors are missing, the first is blocks.0.ffn.in.weight; step 6:
// ..."; the newest few steps. "no worker offers any older state" when there is none.
std::string describe_offers(const parallel::ModelSpec& model, const std::vector<ToldState>& told);

}  // namespace perdure::recovery
