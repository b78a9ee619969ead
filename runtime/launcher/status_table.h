#pragma once
// A page of `perdure status` as text: one line for each plain value, a table for each list of
// objects (a list inside a row follows as rows of its own, led by the row's plain values).

#include <string>

#include "base/status.h"

namespace perdure::runtime::launcher {

// kDataLoss: no JSON object.
base::Result<std::string> status_table(const std::string& json);

}  // namespace perdure::runtime::launcher
