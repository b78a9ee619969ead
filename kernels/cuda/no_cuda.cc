// Stands in for cuda_device.cc in a build without CUDA.

#include "kernels/cuda/cuda_device.h"

namespace perdure::kernels::cuda {

base::Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions&) {
  return base::unimplemented(
      "this build has no CUDA: configure with -DPERDURE_CUDA=on where the CUDA toolkit is, or "
      "choose "
      "device \"cpu\"");
}

}  // namespace perdure::kernels::cuda
