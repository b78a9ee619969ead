#pragma once
// TransferPlan: which tensors move between ranks when a job changes its layout. Pure.

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "parallel/layout.h"

namespace perdure::parallel {

// One tensor with its whole state (parameter, moments, exponents), from a rank that holds it to one
// that needs it. Ranks are those of the new layout.
struct TensorMove {
  base::TensorId tensor;
  base::Rank from;
  base::Rank to;
  friend bool operator==(const TensorMove&, const TensorMove&) = default;
};

struct TransferPlan {
  std::vector<TensorMove> moves;   // ascending by (tensor, to)
  int64_t bytes = 0;               // all moves together
  int64_t busiest_rank_bytes = 0;  // sent plus received by the rank that moves most
};

// held[r]: the tensors that rank r of `layout` has before the change, ascending. Each tensor that a
// rank needs and has not is fetched from the holder with the fewest bytes to send so far (ties: the
// lowest rank), dearest tensors first, so that sources are balanced.
// kDataLoss when a tensor has no holder: the text names every LAYER whose state is gone, by name.
base::Result<TransferPlan> make_transfer_plan(const ModelSpec& model, const Layout& layout,
                                              const std::vector<std::vector<base::TensorId>>& held);

// Bytes of one tensor's state on the wire: f32 parameter and two moments (exponents are small).
int64_t tensor_state_bytes(const ModelSpec& model, base::TensorId tensor);

}  // namespace perdure::parallel
