#pragma once
// Proves that a schedule is legal before anything runs it.

#include "parallel/schedule.h"

namespace perdure::parallel {

enum class SendModel : uint8_t {
  kEager,       // a send completes at once
  kRendezvous,  // a send completes when its receive is reached; before, its slot stays in use
  kBlocking,    // the sender waits there and then until the receive is reached (strictest)
};

// kInvalidArgument with rank, instruction and reason when any of these does not hold:
//   * each F and B (or I then W) of each micro-batch of the pipeline exactly once, F before B;
//   * first and last stages neither receive nor send beyond the pipeline; all others receive before
//     F and B and send after; sends and receives on each link match one to one and in order;
//   * a slot holds one micro-batch at a time, slot < stash_slots;
//   * each bucket reduced once, after the last backward that writes it; vote once, after all; apply
//     once, last;
//   * all ranks together run to the end under the send model (no deadlock), reductions and votes
//     included.
base::Status check_schedule(const ModelSpec& model, const Layout& layout, const Schedule& schedule,
                            SendModel sends = SendModel::kRendezvous);

}  // namespace perdure::parallel
