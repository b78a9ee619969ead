// Stands in for isa_avx2.cc and isa_avx512.cc on processors that are not x86-64.

#include "kernels/cpu/kernel_table.h"

namespace perdure::kernels::cpu {

const KernelTable* avx2_kernels() { return nullptr; }
const KernelTable* avx512_kernels() { return nullptr; }

}  // namespace perdure::kernels::cpu
