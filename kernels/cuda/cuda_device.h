#pragma once
// The CUDA device: memory, streams, events and copies. It has no ops yet, so it cannot train:
// select::make_device() refuses it, and ops() is a CHECK. Without CUDA at build time the same
// symbol comes from no_cuda.cc. No CUDA header is needed to include this one.

#include <memory>

#include "base/status.h"
#include "kernels/device.h"

namespace perdure::kernels::cuda {

struct CudaDeviceOptions {
  int ordinal = 0;  // among the visible devices
};

// kUnavailable without a driver or device; kUnimplemented in a build without CUDA.
base::Result<std::unique_ptr<Device>> make_cuda_device(const CudaDeviceOptions& options);

}  // namespace perdure::kernels::cuda
