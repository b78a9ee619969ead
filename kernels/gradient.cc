#include "kernels/gradient.h"

#include <cstddef>

#include "base/check.h"

namespace perdure::kernels {

GradSink sub_sink(const GradSink& sink, int64_t element_begin, int64_t element_count) {
  CHECK(element_begin >= 0 && element_count >= 0);
  CHECK_LE(element_begin + element_count, sink.elements);
  GradSink part = sink;
  part.elements = element_count;
  const int64_t element_bytes = sink.kind == GradKind::kFixed64 ? 8 : 4;
  part.accumulator = static_cast<std::byte*>(sink.accumulator) + element_begin * element_bytes;
  if (sink.kind == GradKind::kFloat || element_count == 0) return part;

  const int64_t block = element_begin / sink.block_elements;
  const int64_t block_last = (element_begin + element_count - 1) / sink.block_elements;
  CHECK(element_begin % sink.block_elements == 0 || block == block_last)
      << "elements " << element_begin << " + " << element_count << " split a block of "
      << sink.block_elements;
  part.exponents = sink.exponents + block;
  part.abs_max = sink.abs_max + block;
  return part;
}

}  // namespace perdure::kernels
