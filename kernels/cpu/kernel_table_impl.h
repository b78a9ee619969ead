#pragma once
// Fills a KernelTable with the kernels of one vector type. Included by isa_*.cc only.

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/kernels_attention.h"
#include "kernels/cpu/kernels_elementwise.h"
#include "kernels/cpu/kernels_gradient.h"
#include "kernels/cpu/kernels_loss.h"
#include "kernels/cpu/kernels_norm.h"

namespace perdure::kernels::cpu {

template <class V>
KernelTable make_kernel_table(std::string_view name) {
  KernelTable t{};
  t.name = name;
  t.lanes = V::kLanes;
  t.to_bf16 = convert<V, float, BF16>;
  t.to_f32 = convert<V, BF16, float>;
#define PERDURE_BOTH(op) t.op[0] = op<V, float>, t.op[1] = op<V, BF16>
  PERDURE_BOTH(add);
  PERDURE_BOTH(embed);
  PERDURE_BOTH(gelu_forward);
  PERDURE_BOTH(gelu_backward);
  PERDURE_BOTH(swiglu_forward);
  PERDURE_BOTH(swiglu_backward);
  PERDURE_BOTH(rope);
  PERDURE_BOTH(epilogue);
  PERDURE_BOTH(column_sum);
  PERDURE_BOTH(norm_forward);
  PERDURE_BOTH(norm_backward);
  PERDURE_BOTH(attention_forward);
  PERDURE_BOTH(attention_backward);
  PERDURE_BOTH(softmax_backward);
#undef PERDURE_BOTH
  t.exp = exp_row<V>;
  t.log = log_row<V>;
  t.attention_forward_scratch = attention_forward_scratch<V>;
  t.attention_backward_scratch = attention_backward_scratch<V>;
  t.softmax_update = softmax_update<V>;
  t.sink_fixed32 = sink_fixed32<V>;
  t.sink_fixed64 = sink_fixed64<V>;
  t.read_float = read_gradient<V, float>;
  t.read_fixed32 = read_gradient<V, int32_t>;
  t.read_fixed64 = read_gradient<V, int64_t>;
  t.squares_float = squares<V, float>;
  t.squares_fixed32 = squares<V, int32_t>;
  t.squares_fixed64 = squares<V, int64_t>;
  t.adamw = adamw<V>;
  t.digest = digest<V>;
  return t;
}

}  // namespace perdure::kernels::cpu
