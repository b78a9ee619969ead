#include "kernels/cuda/cuda_check.h"

#include <string>

namespace perdure::kernels::cuda {
namespace {

std::string describe(cudaError_t error, std::string_view what) {
  return std::string(what) + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) +
         ")";
}

}  // namespace

base::Status cuda_status(cudaError_t error, std::string_view what) {
  switch (error) {
    case cudaSuccess:
      return base::Status::ok();
    case cudaErrorInsufficientDriver:
      return base::unavailable(
          std::string(what) +
          ": no NVIDIA driver, or one older than this program's CUDA runtime (" +
          cudaGetErrorName(error) + "). Update the driver, or choose device \"cpu\"");
    case cudaErrorNoDevice:
      return base::unavailable(std::string(what) + ": no CUDA device is visible (" +
                               cudaGetErrorName(error) +
                               "). Check CUDA_VISIBLE_DEVICES, or choose \"cpu\"");
    case cudaErrorInitializationError:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorSystemNotReady:
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceUninitialized:
    case cudaErrorStubLibrary:
      return base::unavailable(describe(error, what));
    case cudaErrorMemoryAllocation:
      return base::resource_exhausted(describe(error, what));
    case cudaErrorECCUncorrectable:
      return base::data_loss(describe(error, what));
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorInvalidMemcpyDirection:
      return base::invalid_argument(describe(error, what));
    case cudaErrorNotSupported:
      return base::unimplemented(describe(error, what));
    default:
      return base::internal(describe(error, what));
  }
}

}  // namespace perdure::kernels::cuda
