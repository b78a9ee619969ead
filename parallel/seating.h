#pragma once
// Seating: which worker takes which rank of a layout. Pure.
//
// Seats that are taken stay so. An open seat goes to the worker that holds most of what the seat
// needs; workers that hold nothing useful fill the rest by their number. Among equals, replicas of
// a stage are kept on different nodes.

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "parallel/layout.h"

namespace perdure::parallel {

struct ReplanWorker;

inline constexpr uint32_t kNobody = 0xFFFFFFFF;

enum class HeldState : uint8_t { kMatters, kIgnored };  // kIgnored: every worker can make it

// Fills the open seats (kNobody) of `seats`, which gives an index into `workers` by rank. There are
// enough workers (CHECK). When a tensor would be held only by workers without a seat, one of them
// is given the seat of a worker whose tensors others hold too.
void fill_seats(const ModelSpec& model, const Layout& layout,
                const std::vector<ReplanWorker>& workers, HeldState held,
                std::vector<uint32_t>& seats);

}  // namespace perdure::parallel
