#pragma once
// The single-threaded kernels of one instruction set, as a table of functions. Each works on a
// piece of an op; the files of CpuOps check arguments, cut an op into pieces whose borders depend
// on shapes only, and give the pieces to the threads.
//
// Arrays of two hold the f32 form at [0] and the bf16 form at [1]: see type_index().

#include <cstdint>
#include <string_view>

#include "kernels/dtype.h"

namespace perdure::kernels::cpu {

inline int type_index(DType dtype) { return dtype == DType::kBF16 ? 1 : 0; }

// Rows of a norm. Pointers are to the first row of the piece; strides in elements.
struct NormPiece {
  int64_t rows, cols;
  const float* x;
  int64_t x_stride;
  const float* gamma;
  const float* beta;  // may be null
  void* y;            // forward: written; backward: dy
  int64_t y_stride;
  float* mean;  // null: RMSNorm
  float* rstd;
  float epsilon;
  float* dx;  // backward only
  int64_t dx_stride;
  float* dgamma;  // of this piece, overwritten
  float* dbeta;   // of this piece, overwritten
};

// One head of one sample, or a part of it. Strides are from one time to the next.
struct AttentionPiece {
  int64_t time, head_size;
  int64_t query_begin;  // forward: first row of a tile of kAttentionTile rows
  float scale;
  const void *q, *k, *v;
  void* out;  // backward: read
  int64_t q_stride, k_stride, v_stride, out_stride;
  float* lse;  // [time]
  // Backward: all query heads of one key head.
  int64_t group;
  int64_t q_head, out_head, dout_head, dq_head, lse_head;  // elements from one head to the next
  const void* dout;
  void *dq, *dk, *dv;
  int64_t dout_stride, dq_stride, dk_stride, dv_stride;
  float* scratch;
};
inline constexpr int64_t kAttentionTile = 64;

struct SinkFlags {
  float largest = 0.0f;
  bool overflow = false;
  bool non_finite = false;
};

struct AdamwPiece {
  int64_t count;
  float* param;
  float* m;
  float* v;
  BF16* param_low;        // may be null
  const float* gradient;  // as floats, already scaled
  float lr, beta1, beta2, epsilon, decay, correction1, correction2;
};

struct KernelTable {
  std::string_view name;  // "avx512"
  int lanes;

  // Rows of elements.
  void (*to_bf16)(const float* x, BF16* y, int64_t n);
  void (*to_f32)(const BF16* x, float* y, int64_t n);
  void (*add[2])(const void* x, float* y, int64_t n);                   // y += x
  void (*embed[2])(const void* a, const void* b, float* y, int64_t n);  // y = a (+ b)
  void (*gelu_forward[2])(const void* x, void* y, int64_t n);
  void (*gelu_backward[2])(const void* x, const void* dy, void* dx, int64_t n);
  void (*swiglu_forward[2])(const void* gate, const void* up, void* y, int64_t n);
  void (*swiglu_backward[2])(const void* x, const void* dy, void* dx, int64_t n);  // x, dx: [2n]
  void (*rope[2])(void* x, const float* table, float sign, int64_t half);
  // c = tile (+ bias) (+ c)
  void (*epilogue[2])(const float* tile, const float* bias, void* c, int64_t n, int add);
  void (*column_sum[2])(const void* x, int64_t rows, int64_t stride, float* out, int64_t n);
  void (*exp)(const float* x, float* y, int64_t n);
  void (*log)(const float* x, float* y, int64_t n);

  void (*norm_forward[2])(const NormPiece& piece);
  void (*norm_backward[2])(const NormPiece& piece);

  int64_t (*attention_forward_scratch)(int64_t head_size);                 // floats
  int64_t (*attention_backward_scratch)(int64_t time, int64_t head_size);  // floats
  void (*attention_forward[2])(const AttentionPiece& piece);
  void (*attention_backward[2])(const AttentionPiece& piece);

  // One row. Updates the running max and sum over it.
  void (*softmax_update)(const float* logits, int64_t n, float* max, float* sum);
  // dlogits = exp(logits - max) * factor
  void (*softmax_backward[2])(const float* logits, int64_t n, float max, float factor,
                              void* dlogits);

  // Elements of one block, whose exponent is given. See gradient.h.
  void (*sink_fixed32)(const float* g, int32_t* accumulator, int64_t n, int exponent, int32_t limit,
                       SinkFlags* flags);
  void (*sink_fixed64)(const float* g, int64_t* accumulator, int64_t n, int exponent, int64_t limit,
                       SinkFlags* flags);
  // out = (float)(q * factor)
  void (*read_float)(const float* q, float* out, int64_t n, double factor);
  void (*read_fixed32)(const int32_t* q, float* out, int64_t n, double factor);
  void (*read_fixed64)(const int64_t* q, float* out, int64_t n, double factor);
  // Sum of squares of q, unscaled.
  double (*squares_float)(const float* q, int64_t n);
  double (*squares_fixed32)(const int32_t* q, int64_t n);
  double (*squares_fixed64)(const int64_t* q, int64_t n);

  void (*adamw)(const AdamwPiece& piece);
  uint64_t (*digest)(const float* param, const float* m, const float* v, int64_t n);
};

// Null where this build has no such kernels.
const KernelTable* scalar_kernels();
const KernelTable* avx2_kernels();
const KernelTable* avx512_kernels();

}  // namespace perdure::kernels::cpu
