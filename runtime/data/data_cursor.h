#pragma once
// DataCursor: how far the job is in its data. Part of the state that a step commits: it moves with
// the parameters or not at all, so a step that is run again sees the same samples.

#include <cstdint>

namespace perdure::runtime::data {

struct DataCursor {
  uint64_t samples_consumed = 0;  // by committed steps, over the whole job

  DataCursor after(uint64_t samples) const { return {samples_consumed + samples}; }
  friend bool operator==(const DataCursor&, const DataCursor&) = default;
};

}  // namespace perdure::runtime::data
