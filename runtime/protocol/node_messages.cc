#include "runtime/protocol/node_messages.h"

namespace perdure::runtime::protocol {

std::string_view to_string(Activity activity) {
  switch (activity) {
    case Activity::kIdle:
      return "idle";
    case Activity::kPreparing:
      return "preparing";
    case Activity::kLoaded:
      return "loaded";
    case Activity::kRunning:
      return "running";
    case Activity::kStopped:
      return "stopped";
    case Activity::kFinished:
      return "finished";
  }
  return "unknown";
}

}  // namespace perdure::runtime::protocol
