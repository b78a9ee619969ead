#pragma once
// The JSON of a manifest as values, and back, without its last line.

#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/manifest.h"

namespace perdure::checkpoint {

// One form only: the same manifest gives the same bytes. Ends with a newline.
std::string manifest_to_json(const Manifest& manifest);

// kDataLoss: not this format. The values are not yet compared with each other.
base::Result<Manifest> manifest_from_json(std::string_view json);

}  // namespace perdure::checkpoint
