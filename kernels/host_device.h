#pragma once
// HostDevice: what every device that computes in host memory has in common. Work is done when a
// call returns, so streams and events have nothing to wait for. Threads: as said in device.h.

#include <memory>

#include "kernels/device.h"

namespace perdure::kernels {

class HostDevice : public Device {
 public:
  base::Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override;
  base::Result<std::unique_ptr<Stream>> make_stream() override;
  base::Result<std::unique_ptr<Event>> make_event() override;
  base::Status copy(Stream& stream, void* to, const void* from, size_t bytes,
                    CopyKind kind) override;
};

}  // namespace perdure::kernels
