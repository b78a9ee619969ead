#pragma once
// The list of cases that every device must pass: all ops, dtypes and odd shapes.

#include <vector>

#include "tests/kernels/workbench.h"

namespace perdure::kernels::testing {

std::vector<OpCase> data_cases();
std::vector<OpCase> norm_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> activation_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> gradient_cases();
std::vector<OpCase> all_cases();

// Tolerances of results in T after `terms` products were summed in f32.
OutputTolerance tolerance_of(DType dtype, int64_t terms);

}  // namespace perdure::kernels::testing
