#pragma once
// Which ranks of an epoch send each other anything: neighbours in a pipeline, neighbours in the
// ring of a bucket's holders, the exchanges of the vote, and both ends of a tensor's move. A rank
// needs links to these only, and their number grows with the logarithm of the job, not with it.

#include <vector>

#include "base/ids.h"
#include "parallel/layout.h"
#include "parallel/transfer_plan.h"

namespace perdure::parallel {

// By rank: its partners, ascending, without itself. Symmetric. The layout must be legal.
std::vector<std::vector<base::Rank>> rank_partners(const ModelSpec& model, const Layout& layout,
                                                   const std::vector<TensorMove>& moves);

}  // namespace perdure::parallel
