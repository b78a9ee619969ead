#include "base/trace.h"

#include <algorithm>

namespace perdure::base {

size_t first_different_sample(const Trace& a, const Trace& b) {
  const size_t count = std::min(a.samples().size(), b.samples().size());
  for (size_t i = 0; i < count; ++i) {
    if (a.samples()[i] != b.samples()[i]) return i;
  }
  return count;
}

}  // namespace perdure::base
