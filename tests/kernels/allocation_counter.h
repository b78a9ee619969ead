#pragma once
// Counts calls of malloc and its kin in this process, of all libraries.

#include <cstdint>

namespace perdure::kernels::testing {

// False under sanitizers, which bring their own allocator.
bool can_count_allocations();
int64_t allocation_count();

}  // namespace perdure::kernels::testing
