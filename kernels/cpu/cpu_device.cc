#include "kernels/cpu/cpu_device.h"

#include <string>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/host_device.h"

namespace perdure::kernels::cpu {
namespace {

class CpuDevice final : public HostDevice {
 public:
  explicit CpuDevice(CpuOpsOptions options) : ops_(std::move(options)) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    const char* bf16 =
        ops_.bf16_product() == BF16Product::kNative ? "bf16 native" : "bf16 through f32";
    return "cpu: " + std::string(ops_.kernels().name) + ", " + bf16 + ", " +
           ProductCache::version() + ", " + std::to_string(ops_.threads()) +
           (ops_.threads() == 1 ? " thread, " : " threads, ") +
           std::to_string(ops_.workspace_bytes() >> 20) + " MiB workspace";
  }
  size_t default_workspace_bytes() const override {
    return cpu::default_workspace_bytes(ops_.threads());
  }
  Ops& ops() override { return ops_; }

 private:
  CpuOps ops_;
};

}  // namespace

// Per thread: the attention backward of 4096 x 128 heads, or the f32 copies of bf16 panels. For
// all: dense copies of strided operands.
size_t default_workspace_bytes(int threads) {
  return (size_t{32} << 20) + static_cast<size_t>(threads) * (size_t{16} << 20);
}

base::Result<std::unique_ptr<Device>> make_cpu_device(const DeviceOptions& options,
                                                      const CpuVariant& variant) {
  CHECK_GE(options.threads, 1);
  const size_t bytes = options.workspace_bytes != 0 ? options.workspace_bytes
                                                    : default_workspace_bytes(options.threads);
  CpuOpsOptions ops;
  ops.threads = options.threads;
  ASSIGN_OR_RETURN(ops.workspace, HostRegion::make(bytes));
  ops.kernels = variant.kernels;
  ops.bf16_product = variant.bf16_product;
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(ops)));
}

base::Result<std::unique_ptr<Device>> make_cpu_device(const DeviceOptions& options) {
  return make_cpu_device(options, CpuVariant{nullptr, bf16_product()});
}

}  // namespace perdure::kernels::cpu
