#pragma once
// `perdure ckpt rm`: removes the checkpoints of one step.

#include <string>

#include "base/file_system.h"
#include "base/status.h"

namespace perdure::apps {

struct RemoveArguments {
  std::string root;
  uint64_t step = 0;
  bool force = false;
};

// All saves of the step, and prints each. kFailedPrecondition, and nothing is removed: one of them
// is what a restart would need, or may be in use, and there is no --force.
base::Status remove_step(base::FileSystem& files, const RemoveArguments& arguments);

}  // namespace perdure::apps
