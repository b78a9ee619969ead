#pragma once
// The CPU device: AVX-512, AVX2 or plain kernels, chosen at run time; matrix products by oneDNN.
//
// It owns its compute threads, its workspace and its primitives. Used by one thread at a time. Bits
// of results depend on shapes, values and the instruction set, never on the number of threads.

#include <memory>

#include "base/status.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/device.h"

namespace perdure::kernels::cpu {

// What DeviceOptions::workspace_bytes = 0 stands for.
size_t default_workspace_bytes(int threads);

// kResourceExhausted when there is no memory for the workspace.
base::Result<std::unique_ptr<Device>> make_cpu_device(const DeviceOptions& options);

// The same with kernels of our choice: tests run all that the machine can. Null stands for the
// best.
struct CpuVariant {
  const KernelTable* kernels = nullptr;
  BF16Product bf16_product = BF16Product::kNative;
};
base::Result<std::unique_ptr<Device>> make_cpu_device(const DeviceOptions& options,
                                                      const CpuVariant& variant);

}  // namespace perdure::kernels::cpu
