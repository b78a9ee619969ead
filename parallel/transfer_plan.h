#pragma once
// TransferPlan: which tensors move between ranks when a job changes its layout. Pure.

#include <cstdint>
#include <span>
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

// The same without copies.
base::Result<TransferPlan> make_transfer_plan(
    const ModelSpec& model, const Layout& layout,
    std::span<const std::span<const base::TensorId>> held);

// Bytes of one tensor's state on the wire: f32 parameter and two moments (exponents are small).
int64_t tensor_state_bytes(const ModelSpec& model, base::TensorId tensor);

// Tensors that layers [begin, end) use, ascending and once each.
std::vector<base::TensorId> tensors_of_layers(const ModelSpec& model, uint32_t begin, uint32_t end);

// kDataLoss that names every layer with a tensor that is gone (by tensor id); ok when there is
// none.
base::Status state_is_gone(const ModelSpec& model, const std::vector<bool>& is_gone);

}  // namespace perdure::parallel
