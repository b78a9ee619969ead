// Gradient sinks, block by block.

#include <atomic>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {
namespace {

void raise(float* to, float value) {
  std::atomic_ref<float> shared(*to);
  float before = shared.load(std::memory_order_relaxed);
  while (before < value &&
         !shared.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void add_to_sink(const KernelTable& kernels, const float* g, int64_t begin, int64_t count,
                 const GradSink& sink) {
  if (sink.kind == GradKind::kFloat) {
    kernels.add[0](g, static_cast<float*>(sink.accumulator) + begin, count);
    return;
  }
  uint32_t raised = 0;
  for (int64_t at = begin; at < begin + count;) {
    const int64_t block = at / sink.block_elements;
    const int64_t block_end = (block + 1) * sink.block_elements;
    const int64_t end = block_end < begin + count ? block_end : begin + count;
    const float* part = g + (at - begin);
    SinkFlags flags;
    if (sink.kind == GradKind::kFixed32) {
      kernels.sink_fixed32(part, static_cast<int32_t*>(sink.accumulator) + at, end - at,
                           sink.exponents[block], static_cast<int32_t>(sink.limit), &flags);
    } else {
      kernels.sink_fixed64(part, static_cast<int64_t*>(sink.accumulator) + at, end - at,
                           sink.exponents[block], sink.limit, &flags);
    }
    raise(sink.abs_max + block, flags.largest);
    raised |= (flags.overflow ? kGradOverflow : 0u) | (flags.non_finite ? kGradNonFinite : 0u);
    at = end;
  }
  if (raised != 0) sink.flags->fetch_or(raised, std::memory_order_relaxed);
}

}  // namespace perdure::kernels::cpu
