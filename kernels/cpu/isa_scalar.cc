// Compiled with the flags of its instruction set: see CMakeLists.txt.

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vec_scalar.h"
// Needs the vector type and the table above it.
#include "kernels/cpu/kernel_table_impl.h"

namespace perdure::kernels::cpu {

const KernelTable* scalar_kernels() {
  static const KernelTable table = make_kernel_table<Scalar>("scalar");
  return &table;
}

}  // namespace perdure::kernels::cpu
