#include "tests/kernels/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace perdure::kernels::testing {
namespace {
std::atomic<int64_t> g_count{0};
}  // namespace

int64_t allocation_count() { return g_count.load(); }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
bool can_count_allocations() { return false; }
#else
bool can_count_allocations() { return true; }
void count_allocation() { g_count.fetch_add(1, std::memory_order_relaxed); }
#endif

}  // namespace perdure::kernels::testing

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && defined(__GLIBC__)
// These take the place of glibc's own in the whole process; operator new ends up here too.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  perdure::kernels::testing::count_allocation();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  perdure::kernels::testing::count_allocation();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  perdure::kernels::testing::count_allocation();
  return __libc_realloc(old, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  perdure::kernels::testing::count_allocation();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
void* aligned_alloc(size_t alignment, size_t size) {
  perdure::kernels::testing::count_allocation();
  return __libc_memalign(alignment, size);
}
}
#endif
