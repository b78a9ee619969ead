#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace perdure::kernels::cpu {
namespace {

#if defined(__x86_64__)
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
bool has_avx512_bf16() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (!has_avx512() || __get_cpuid_count(7, 1, &a, &b, &c, &d) == 0) return false;
  return (a & (1u << 5)) != 0;
}
#else
bool has_avx2() { return false; }
bool has_avx512() { return false; }
bool has_avx512_bf16() { return false; }
#endif

}  // namespace

std::vector<const KernelTable*> usable_kernels() {
  std::vector<const KernelTable*> all{scalar_kernels()};
  if (has_avx2() && avx2_kernels() != nullptr) all.push_back(avx2_kernels());
  if (has_avx512() && avx512_kernels() != nullptr) all.push_back(avx512_kernels());
  return all;
}

const KernelTable& best_kernels() { return *usable_kernels().back(); }

BF16Product bf16_product() {
  return has_avx512_bf16() ? BF16Product::kNative : BF16Product::kThroughF32;
}

}  // namespace perdure::kernels::cpu
