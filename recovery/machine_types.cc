#include "recovery/machine_types.h"

namespace perdure::recovery {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kGathering:
      return "gathering";
    case Phase::kRejoining:
      return "rejoining";
    case Phase::kCollecting:
      return "collecting";
    case Phase::kResolving:
      return "resolving";
    case Phase::kRestoring:
      return "restoring";
    case Phase::kWaiting:
      return "waiting";
    case Phase::kPreparing:
      return "preparing";
    case Phase::kLoading:
      return "loading";
    case Phase::kActive:
      return "active";
    case Phase::kHolding:
      return "holding";
    case Phase::kOver:
      return "over";
  }
  return "unknown";
}

std::string_view to_string(StateTier tier) {
  switch (tier) {
    case StateTier::kMemory:
      return "memory";
    case StateTier::kPeer:
      return "peer";
    case StateTier::kDisk:
      return "disk";
    case StateTier::kDurable:
      return "durable";
  }
  return "unknown";
}

}  // namespace perdure::recovery
