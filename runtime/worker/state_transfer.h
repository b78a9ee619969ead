#pragma once
// Moves tensors between the stores of an epoch's ranks, as its plan says.
//
//   source                                       receiver
//   tensor ─► message buffer ── 1 MiB chunks ──► message buffer ─► staged tensor ─► held tensor
//             place, XXH3, digest of the tensor   place, XXH3 right?   all chunks, digest right?
//
// Every rank walks the chunks of all moves in the same order and keeps the next few of its own in
// flight. The first chunk in that order that is not done is posted at both its ends, so no order of
// moves can make ranks wait for each other. Message: docs/formats/state_chunk.md.

#include <cstdint>
#include <span>

#include "parallel/transfer_plan.h"
#include "runtime/collective/fabric.h"
#include "runtime/engine/tensor_store.h"

namespace perdure::runtime::worker {

inline constexpr size_t kStateChunkBytes = size_t{1} << 20;

struct TransferOptions {
  std::span<const parallel::TensorMove> moves;
  collective::Timeout timeout{60000};  // for each chunk
};

// Blocks. Called by every rank of `fabric` with the same moves; `store` is at the step that the
// epoch resumes from. Gives the bytes of state that arrived here.
//
// A tensor is held when it is whole and its digest is the source's; those stay held when the
// transfer fails, nothing else has changed then, and the fabric is aborted. Errors: of the fabric;
// kDataLoss names tensor, chunk and source; kFailedPrecondition: a tensor to be sent is not held;
// kInvalidArgument: a tensor is to arrive twice.
base::Result<uint64_t> transfer_state(const TransferOptions& options, engine::TensorStore& store,
                                      collective::Fabric& fabric);

}  // namespace perdure::runtime::worker
