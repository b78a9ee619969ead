#pragma once
// The oracle: every op of ops.h as plain loops in double, rounded once when stored. Slow,
// single-threaded, and written to be read. One thread uses it at a time.

#include <memory>

#include "kernels/device.h"

namespace perdure::kernels::reference {

std::unique_ptr<Device> make_reference_device(const DeviceOptions& options);

}  // namespace perdure::kernels::reference
