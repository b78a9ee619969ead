#pragma once
// TimedDevice: passes every op on to a device and adds up time, flops and bytes by op.

#include <map>
#include <memory>
#include <string>

#include "kernels/ops.h"

namespace perdure::bench {

struct OpTotals {
  double seconds = 0.0;
  double flops = 0.0;  // of matrix products and attention; 0: bound by memory
  double bytes = 0.0;  // least that must be read and written
  int64_t calls = 0;
};

// Wraps a device that outlives it.
class TimedDevice : public kernels::Device {
 public:
  explicit TimedDevice(kernels::Device& device);
  ~TimedDevice() override;
  std::string_view name() const override { return device_.name(); }
  std::string description() const override { return device_.description(); }
  base::Result<std::unique_ptr<kernels::DeviceBuffer>> allocate(size_t bytes) override {
    return device_.allocate(bytes);
  }
  base::Result<std::unique_ptr<kernels::Stream>> make_stream() override {
    return device_.make_stream();
  }
  base::Result<std::unique_ptr<kernels::Event>> make_event() override {
    return device_.make_event();
  }
  base::Status copy(kernels::Stream& stream, void* to, const void* from, size_t bytes,
                    kernels::CopyKind kind) override {
    return device_.copy(stream, to, from, bytes, kind);
  }
  kernels::Ops& ops() override;

  const std::map<std::string, OpTotals>& totals() const { return totals_; }
  void clear() { totals_.clear(); }

 private:
  class Ops;
  kernels::Device& device_;
  std::unique_ptr<Ops> ops_;
  std::map<std::string, OpTotals> totals_;
};

}  // namespace perdure::bench
