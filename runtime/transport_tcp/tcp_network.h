#pragma once
// TcpNetwork: base/network.h over TCP sockets. The control plane uses it; gradients travel by UCX
// or NCCL.

#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/network.h"
#include "base/task.h"
#include "base/units.h"

namespace perdure::runtime::transport_tcp {

struct TcpOptions {
  // A stream whose bytes stay unacknowledged for so long is cut. TCP's own patience is 15 minutes,
  // and a partition raises no error before; heartbeats of the layer above find a silent peer
  // earlier.
  base::Nanos unacknowledged_max = base::Nanos(20'000'000'000);
  int backlog = 128;
};

// Everything runs on the executor's thread. `clock` belongs to the same component and outlives the
// network, as do its listeners and channels.
class TcpNetwork final : public base::Network {
 public:
  TcpNetwork(base::Executor executor, base::Clock& clock, const TcpOptions& options = {});

  base::Result<std::unique_ptr<base::Listener>> listen(const base::Address& address) override;
  base::Task<base::Result<std::unique_ptr<base::Channel>>> connect(base::Address address,
                                                                   base::Nanos deadline) override;

 private:
  base::Executor executor_;
  base::Clock& clock_;
  const TcpOptions options_;
};

}  // namespace perdure::runtime::transport_tcp
