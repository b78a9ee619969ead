#pragma once
// Move-only owners of UCX objects. Destructors release; errors of release are nobody's to act on.

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/transport/ucx_fabric.h"

namespace perdure::runtime::transport {

struct UcxConfigDeleter {
  void operator()(ucp_config_t* config) const { ucp_config_release(config); }
};
struct UcxContextDeleter {
  void operator()(ucp_context_h context) const { ucp_cleanup(context); }
};
struct UcxWorkerDeleter {
  void operator()(ucp_worker_h worker) const { ucp_worker_destroy(worker); }
};
using UcxConfig = std::unique_ptr<ucp_config_t, UcxConfigDeleter>;
using UcxContext = std::unique_ptr<std::remove_pointer_t<ucp_context_h>, UcxContextDeleter>;
using UcxWorker = std::unique_ptr<std::remove_pointer_t<ucp_worker_h>, UcxWorkerDeleter>;

class UcxPort {
 public:
  UcxContext context;
  UcxWorker worker;  // destroyed before the context
  std::vector<std::byte> address;
};

// What a UCX code means to a caller of Fabric; `what` leads the text.
base::Status ucx_status(ucs_status_t code, const std::string& what);

}  // namespace perdure::runtime::transport
