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

}  // namespace perdure::recovery
