#pragma once
// One question over a Unix socket, blocking: a process at a fault point must not go on meanwhile.

#include <string>

#include "base/status.h"

namespace perdure::runtime::faults {

// Sends `line` (which ends with a newline) and waits for the line that comes back, for ever.
// kUnavailable: nobody listens, or the connection ended before the answer.
base::Result<std::string> ask_unix(const std::string& path, const std::string& line);

}  // namespace perdure::runtime::faults
