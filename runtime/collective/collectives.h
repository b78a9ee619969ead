#pragma once
// Collectives among a list of ranks, built on a Fabric. Each is called by every member with the
// same arguments (but its own data) and returns when this member's result is there.
//
// Errors are those of Fabric::wait. After an error the buffer's content is undefined and the fabric
// is unusable: the caller leaves the epoch. A failing member aborts its fabric, so the others do
// not wait for it.

#include <cstdint>
#include <span>

#include "runtime/collective/fabric.h"
#include "runtime/collective/reduce_op.h"

namespace perdure::runtime::collective {

struct AllReduceArgs {
  std::span<const base::Rank> members;  // ascending, holds the caller
  ReduceOp op = ReduceOp::kSumI64;
  std::span<std::byte> data;     // in place
  std::span<std::byte> scratch;  // at least all_reduce_scratch_bytes()
  Channel channel = Channel::kReduce;
  uint32_t step = 0;
  uint32_t index = 0;  // < 2^8: tells collectives of one step and channel apart
  Timeout timeout{30000};
};

// Bandwidth-optimal ring: reduce-scatter, then all-gather (Patarasuk and Yuan, JPDC 2009): each
// member sends 2 (n-1)/n of the data. Segments travel in chunks so that adding overlaps with
// receiving.
base::Status all_reduce_ring(Fabric& fabric, const AllReduceArgs& args);

// Latency-optimal recursive doubling for small data: about log2(n) rounds, all data in each.
// Members beyond the largest power of two fold into a partner first and are told the result last.
// scratch: as large as data.
base::Status all_reduce_small(Fabric& fabric, const AllReduceArgs& args);

inline constexpr size_t kRingChunkBytes = 256 * 1024;
size_t all_reduce_scratch_bytes();  // of the ring, whatever the data

}  // namespace perdure::runtime::collective
