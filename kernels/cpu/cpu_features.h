#pragma once
// Chooses the kernels for this processor at run time.

#include <string_view>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace perdure::kernels::cpu {

// The best kernels that this processor runs.
const KernelTable& best_kernels();

// All kernels that this processor runs, best last: for tests and benchmarks.
std::vector<const KernelTable*> usable_kernels();

// Whether products of bf16 operands run faster than after conversion to f32.
enum class BF16Product { kNative, kThroughF32 };
BF16Product bf16_product();

}  // namespace perdure::kernels::cpu
