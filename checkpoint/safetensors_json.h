#pragma once
// The JSON of a safetensors header as values, before these are compared with each other and with
// the file.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoint/safetensors.h"

namespace perdure::checkpoint {

struct HeaderJson {
  std::vector<StoredTensor> tensors;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// Rules V4 to V11 and V16. kInvalidArgument: V11.
base::Result<HeaderJson> read_header_json(std::string_view json, const ReadLimits& limits);

}  // namespace perdure::checkpoint
