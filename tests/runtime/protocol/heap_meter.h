#pragma once
// The heap of this test binary: how much `new` has given out, and the most at one time.

#include <cstddef>

namespace perdure::runtime::protocol::testing {

size_t heap_bytes();
size_t heap_peak_bytes();
void reset_heap_peak();

}  // namespace perdure::runtime::protocol::testing
