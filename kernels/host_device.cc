#include "kernels/host_device.h"

#include <cstring>

#include "kernels/host_memory.h"

namespace perdure::kernels {
namespace {

class HostStream final : public Stream {
 public:
  base::Status synchronize() override { return base::Status::ok(); }
};

class HostEvent final : public Event {
 public:
  base::Status record(Stream&) override { return base::Status::ok(); }
  base::Status make_wait(Stream&) override { return base::Status::ok(); }
  base::Status synchronize() override { return base::Status::ok(); }
};

class HostBuffer final : public DeviceBuffer {
 public:
  HostBuffer(HostRegion region, size_t bytes) : region_(std::move(region)), bytes_(bytes) {}
  std::byte* data() override { return region_.data(); }
  size_t size_bytes() const override { return bytes_; }

 private:
  HostRegion region_;
  size_t bytes_;
};

}  // namespace

base::Result<std::unique_ptr<DeviceBuffer>> HostDevice::allocate(size_t bytes) {
  ASSIGN_OR_RETURN(HostRegion region, HostRegion::make(bytes));
  return std::unique_ptr<DeviceBuffer>(std::make_unique<HostBuffer>(std::move(region), bytes));
}

base::Result<std::unique_ptr<Stream>> HostDevice::make_stream() {
  return std::unique_ptr<Stream>(std::make_unique<HostStream>());
}

base::Result<std::unique_ptr<Event>> HostDevice::make_event() {
  return std::unique_ptr<Event>(std::make_unique<HostEvent>());
}

base::Status HostDevice::copy(Stream&, void* to, const void* from, size_t bytes, CopyKind) {
  if (bytes > 0) std::memcpy(to, from, bytes);
  return base::Status::ok();
}

}  // namespace perdure::kernels
