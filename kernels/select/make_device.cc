#include "kernels/select/make_device.h"

#include <string>

#include "kernels/cpu/cpu_device.h"
#include "kernels/cuda/cuda_device.h"
#include "kernels/reference/reference_device.h"

namespace perdure::kernels::select {
namespace {

constexpr int kThreadsMax = 1024;

}  // namespace

base::Result<std::unique_ptr<Device>> make_device(std::string_view name,
                                                  const DeviceOptions& options) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return base::invalid_argument("a device needs 1 to " + std::to_string(kThreadsMax) +
                                  " threads, not " + std::to_string(options.threads));
  }
  if (name == "cpu") return cpu::make_cpu_device(options);
  if (name == "cuda") {
    ASSIGN_OR_RETURN(const auto device, cuda::make_cuda_device({}));
    return base::unimplemented("found " + device->description() +
                               ", but training on CUDA is not part of this version: choose cpu");
  }
  if (name == "reference") return reference::make_reference_device(options);
  return base::invalid_argument("no device \"" + std::string(name) +
                                "\": choose cpu, cuda or reference");
}

}  // namespace perdure::kernels::select
