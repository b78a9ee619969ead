#include "kernels/reference/reference_device.h"

#include "kernels/host_device.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {
namespace {

class ReferenceDevice final : public HostDevice {
 public:
  std::string_view name() const override { return "reference"; }
  std::string description() const override { return "reference: plain loops in double, 1 thread"; }
  Ops& ops() override { return ops_; }

 private:
  ReferenceOps ops_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(const DeviceOptions& options) {
  CHECK_GE(options.threads, 1);
  return std::make_unique<ReferenceDevice>();
}

}  // namespace perdure::kernels::reference
