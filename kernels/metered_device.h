#pragma once
// MeteredDevice: passes every op on to a device and adds up, by op, what a meter shows: time,
// allocations, page faults. Also the least work that the op has to do, so that its speed can be
// held against a limit.
//
// Meaningful for devices that compute while the op is called (CPU). Threads: as the device.

#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "kernels/ops.h"

namespace perdure::kernels {

// Reads the meter. Called before and after each op.
using Meter = std::function<double()>;

struct OpTotals {
  double amount = 0.0;  // on the meter
  double flops = 0.0;   // of matrix products and attention; 0: bound by memory
  double bytes = 0.0;   // least that must be read and written
  int64_t calls = 0;
};

class MeteredDevice : public Device {
 public:
  // `device` outlives this.
  MeteredDevice(Device& device, Meter meter);
  ~MeteredDevice() override;

  std::string_view name() const override { return device_.name(); }
  std::string description() const override { return device_.description(); }
  size_t default_workspace_bytes() const override { return device_.default_workspace_bytes(); }
  base::Result<std::unique_ptr<DeviceBuffer>> allocate(size_t bytes) override {
    return device_.allocate(bytes);
  }
  base::Result<std::unique_ptr<Stream>> make_stream() override { return device_.make_stream(); }
  base::Result<std::unique_ptr<Event>> make_event() override { return device_.make_event(); }
  base::Status copy(Stream& stream, void* to, const void* from, size_t bytes,
                    CopyKind kind) override {
    return device_.copy(stream, to, from, bytes, kind);
  }
  Ops& ops() override;

  // By name of the op: "matmul forward", "adamw".
  const std::map<std::string_view, OpTotals>& totals() const { return totals_; }
  // Names stay, so that counting again allocates nothing.
  void clear() {
    for (auto& [name, totals] : totals_) totals = {};
  }

 private:
  class MeteredOps;
  Device& device_;
  const Meter meter_;
  std::map<std::string_view, OpTotals> totals_;
  std::unique_ptr<MeteredOps> ops_;
};

}  // namespace perdure::kernels
