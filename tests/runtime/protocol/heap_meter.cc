#include "tests/runtime/protocol/heap_meter.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace perdure::runtime::protocol::testing {
namespace {
std::atomic<size_t> g_bytes{0};
std::atomic<size_t> g_peak{0};
}  // namespace

size_t heap_bytes() { return g_bytes; }
size_t heap_peak_bytes() { return g_peak; }
void reset_heap_peak() { g_peak = g_bytes.load(); }

static void* take(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) std::abort();
  g_bytes += malloc_usable_size(memory);
  g_peak = std::max(g_peak.load(), g_bytes.load());
  return memory;
}

static void give(void* memory) {
  if (memory != nullptr) g_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace perdure::runtime::protocol::testing

void* operator new(size_t size) { return perdure::runtime::protocol::testing::take(size); }
void operator delete(void* memory) noexcept { perdure::runtime::protocol::testing::give(memory); }
void operator delete(void* memory, size_t) noexcept {
  perdure::runtime::protocol::testing::give(memory);
}
