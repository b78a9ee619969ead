#pragma once
// What must hold for an EpochPlan whoever made it: checked by the coordinator before it is written
// down and by every worker before it is followed. Pure.

#include <optional>
#include <string>

#include "base/status.h"
#include "parallel/model_spec.h"
#include "recovery/epoch_types.h"

namespace perdure::recovery {

// A legal layout for the model, moves between ranks that exist: what a worker can check, who is
// not told of the members.
base::Status check_shape(const parallel::ModelSpec& model, const EpochPlan& plan);

// Also one member per rank, no worker twice. kInvalidArgument names what is wrong.
base::Status check_plan(const parallel::ModelSpec& model, const EpochPlan& plan);

// The rank of this process in the plan; none when it (or an older process of its number) is no
// member.
std::optional<base::Rank> rank_of(const EpochPlan& plan, base::WorkerId worker,
                                  base::Incarnation incarnation);

}  // namespace perdure::recovery
