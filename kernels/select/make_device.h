#pragma once
// The one place that knows all implementations of kernels/device.h.

#include <memory>
#include <string_view>

#include "base/status.h"
#include "kernels/device.h"

namespace perdure::kernels::select {

// name: "cpu", "cuda" or "reference". kInvalidArgument for another name or for options without
// sense; kUnimplemented or kUnavailable when this build or this machine cannot drive such a device.
base::Result<std::unique_ptr<Device>> make_device(std::string_view name,
                                                  const DeviceOptions& options);

}  // namespace perdure::kernels::select
