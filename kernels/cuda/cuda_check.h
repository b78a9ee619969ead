#pragma once
// CUDA error codes -> Status.

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/status.h"

namespace perdure::kernels::cuda {

// kUnavailable: no driver, no device, or a device that fell off the bus. kResourceExhausted: no
// memory. kDataLoss: memory with an uncorrectable error. kInvalidArgument: our call was wrong.
// Everything else is kInternal; after one of the errors that spoil the context, only a new process
// helps. The text says what was being done, and names the error.
base::Status cuda_status(cudaError_t error, std::string_view what);

}  // namespace perdure::kernels::cuda
