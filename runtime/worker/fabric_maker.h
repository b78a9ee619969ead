#pragma once
// Seam: where the communicators of an epoch come from. Real: UCX (picked by the main); in tests:
// ranks as threads.

#include <memory>
#include <string>

#include "runtime/collective/fabric.h"
#include "runtime/job/job_config.h"

namespace perdure::runtime::worker {

struct FabricRequest {
  base::Rank rank;
  uint32_t ranks = 1;
  base::Epoch epoch;
  job::Transport transport = job::Transport::kAuto;
  std::string network_device;
};

// Threads: the engine thread only.
class FabricMaker {
 public:
  virtual ~FabricMaker() = default;
  // Errors are those of the transport.
  virtual base::Result<std::unique_ptr<collective::MeshFabric>> make(
      const FabricRequest& request) = 0;
  // The next make() will be asked for this, all but rank, ranks and epoch: what takes long may be
  // made now, in the background.
  virtual void get_ready(const FabricRequest& request) { static_cast<void>(request); }
};

}  // namespace perdure::runtime::worker
