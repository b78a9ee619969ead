// Built with -O3: the loops are left to the compiler's vectoriser, and integer and max are exact in
// any order.

#include "runtime/collective/reduce_op.h"

#include <algorithm>

#include "base/check.h"

namespace perdure::runtime::collective {
namespace {

struct Sum {
  template <typename T>
  static T apply(T a, T b) {
    return a + b;
  }
};
struct Max {
  template <typename T>
  static T apply(T a, T b) {
    return a < b ? b : a;
  }
};

template <typename T, typename Op>
void combine_as(std::span<std::byte> into, std::span<const std::byte> from) {
  T* __restrict a = reinterpret_cast<T*>(into.data());
  const T* __restrict b = reinterpret_cast<const T*>(from.data());
  const size_t count = into.size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) a[i] = Op::apply(a[i], b[i]);
}

void sum_then_max(std::span<std::byte> into, std::span<const std::byte> from) {
  const size_t words = into.size() / sizeof(uint64_t);
  CHECK_GT(words, 0u);
  const auto sums = *reinterpret_cast<const uint64_t*>(from.data());
  CHECK_EQ(sums, *reinterpret_cast<const uint64_t*>(into.data())) << "two votes of different shape";
  CHECK_LT(sums, words);  // before it is multiplied: the product may wrap around
  const size_t split = (1 + sums) * sizeof(uint64_t);
  combine_as<uint64_t, Sum>(into.subspan(8, split - 8), from.subspan(8, split - 8));
  combine_as<uint64_t, Max>(into.subspan(split), from.subspan(split));
}

}  // namespace

size_t element_bytes(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSumI32:
    case ReduceOp::kSumF32:
    case ReduceOp::kMaxF32:
      return 4;
    case ReduceOp::kSumI64:
    case ReduceOp::kSumU64:
    case ReduceOp::kMaxU64:
    case ReduceOp::kSumThenMax:
      return 8;
  }
  return 0;
}

void combine(ReduceOp op, std::span<std::byte> into, std::span<const std::byte> from) {
  CHECK_EQ(into.size(), from.size());
  CHECK_EQ(into.size() % element_bytes(op), 0u);
  switch (op) {
    // Unsigned addition has the bits of signed addition and no undefined overflow.
    case ReduceOp::kSumI32:
      return combine_as<uint32_t, Sum>(into, from);
    case ReduceOp::kSumI64:
    case ReduceOp::kSumU64:
      return combine_as<uint64_t, Sum>(into, from);
    case ReduceOp::kSumF32:
      return combine_as<float, Sum>(into, from);
    case ReduceOp::kMaxF32:
      return combine_as<float, Max>(into, from);
    case ReduceOp::kMaxU64:
      return combine_as<uint64_t, Max>(into, from);
    case ReduceOp::kSumThenMax:
      return sum_then_max(into, from);
  }
}

}  // namespace perdure::runtime::collective
