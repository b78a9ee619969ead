#pragma once
// CudaHandle: owns one handle of the CUDA runtime (stream, event, device memory). Move-only. The
// destructor prints an error, because it cannot return one; close() returns it.

#include <cuda_runtime_api.h>

#include <cstdio>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/cuda_check.h"

namespace perdure::kernels::cuda {

template <typename T, cudaError_t (*Destroy)(T)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(T handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaHandle() {
    const base::Status status = close();
    if (!status.is_ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  }

  T get() const { return handle_; }
  base::Status close() {
    if (handle_ == nullptr) return base::Status::ok();
    return cuda_status(Destroy(std::exchange(handle_, nullptr)), "releasing a CUDA handle");
  }

 private:
  T handle_ = nullptr;
};

using StreamHandle = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using MemoryHandle = CudaHandle<void*, cudaFree>;

}  // namespace perdure::kernels::cuda
