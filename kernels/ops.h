#pragma once
// Ops: everything that the engine computes. One class per implementation; tests/kernels compares
// each with reference/ over dtypes and odd shapes.
//
// Contract of every op
//   * Bits depend on shapes, dtypes and values only: not on the number of threads, on the alignment
//   or
//     stride of buffers, on other work in flight. Each implementation fixes its reduction order by
//     shape.
//   * Shapes and dtypes are CHECKed: a wrong one is a bug. "T" is the compute type, f32 or bf16;
//   one call
//     uses one T. Arithmetic inside is f32 or wider; only stores round.
//   * Inputs and outputs do not overlap unless said so. Absent tensors are allowed where said.
//   * Nothing is allocated after an op has run once with the same shapes.
//   * R = rows (tokens of a micro-batch), C = width, V = vocabulary.

#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/device.h"
#include "kernels/gradient.h"
#include "kernels/tensor.h"

namespace perdure::kernels {

enum class Transpose : uint8_t { kNo, kYes };
enum class Accumulate : uint8_t { kOverwrite, kAdd };
enum class RopeDirection : uint8_t { kForward, kInverse };

// c[M, N] = op(a)[M, K] * op(b)[K, N] (+ bias[N]) (+ c).  a, b: T. c: f32 or T. bias: f32 or
// absent.
struct MatmulArgs {
  Tensor a{};
  Tensor b{};
  Tensor c{};
  Tensor bias{};
  Transpose transpose_a = Transpose::kNo;  // kYes: a is stored [K, M]
  Transpose transpose_b = Transpose::kNo;  // kYes: b is stored [N, K]
  Accumulate accumulate = Accumulate::kOverwrite;
};

// Shapes as in the forward; q, out, dq, dout: [B, T, H, D]; k, v, dk, dv: [B, T, Hkv, D], H % Hkv
// == 0. Causal. lse: f32 [B, H, T], the log-sum-exp of each row's scaled scores.
struct AttentionArgs {
  Tensor q{}, k{}, v{};
  Tensor out{};
  Tensor lse{};
  float scale = 0.0f;
};
struct AttentionGradArgs {
  AttentionArgs forward{};
  Tensor dout{};
  Tensor dq{}, dk{}, dv{};  // overwritten
};

// Norm over the last dimension. x: f32 [R, C]; y: T [R, C]; gamma, beta: f32 [C]; mean, rstd: f32
// [R]. RMSNorm has neither beta nor mean (absent). Backward: dy is T; dx f32 [R, C] is ADDED to
// (the residual stream's gradient); dgamma, dbeta f32 [C] are overwritten.
struct NormArgs {
  Tensor x{};
  Tensor gamma{};
  Tensor beta{};
  Tensor y{};
  Tensor mean{};
  Tensor rstd{};
  float epsilon = 1e-5f;
};
struct NormGradArgs {
  NormArgs forward{};  // y is not read
  Tensor dy{};
  Tensor dx{};
  Tensor dgamma{};
  Tensor dbeta{};
};

// Running state of a softmax over vocabulary chunks, all f32 [R]. begin_softmax resets it.
struct SoftmaxState {
  Tensor max{};
  Tensor sum{};  // of exp(logit - max)
  Tensor target_logit{};
};

// AdamW with decoupled decay (Loshchilov and Hutter, arXiv 1711.05101):
//   g = gradient * gradient_multiplier
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   p = p - lr * (m / correction1 / (sqrt(v / correction2) + epsilon) + decay * p)
// The gradient is read from a GradSink's accumulator: f32 as it is, fixed point as (double)q *
// 2^-exponent. digests, when not empty, receives one XXH3 per chunk of kDigestChunk elements over
// the bytes of the new p, m, v of that chunk, in this order: size ceil(elements / kDigestChunk).
struct AdamwArgs {
  Tensor param{};       // f32 [elements]
  Tensor m{}, v{};      // f32 [elements]
  Tensor param_low{};   // bf16 [elements] or absent: receives the rounded parameters
  GradSink gradient{};  // read only
  double gradient_multiplier = 1.0;
  float lr = 0.0f, beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f, decay = 0.0f;
  float correction1 = 1.0f;  // 1 - beta1^step
  float correction2 = 1.0f;  // 1 - beta2^step
  std::span<uint64_t> digests{};
};
inline constexpr int64_t kDigestChunk = 8192;

class Ops {
 public:
  virtual ~Ops() = default;

  // -- data movement
  virtual void fill_zero(Stream& s, const Tensor& x) = 0;  // dense
  virtual void copy(Stream& s, const Tensor& from,
                    const Tensor& to) = 0;  // same shape; converts f32 <-> bf16
  virtual void add(Stream& s, const Tensor& x,
                   const Tensor& y) = 0;  // y(f32) += x(T); same 2-D shape

  // -- embedding: tokens i32 [R]; table T [V, C]; position_table T [Tmax, C] or absent; row r has
  // position
  //    r % time. y f32 [R, C] = table[token] + position_table[position].
  virtual void embedding_forward(Stream& s, const Tensor& tokens, const Tensor& table,
                                 const Tensor& position_table, int64_t time, const Tensor& y) = 0;
  //    The gradient of table row t is the f32 sum of dy (f32 [R, C]) over rows with that token, in
  //    row order; it is then added to the sink once. Rows without a token get nothing.
  virtual void embedding_backward(Stream& s, const Tensor& tokens, const Tensor& dy,
                                  const GradSink& sink) = 0;
  //    Likewise for positions: row p of the sink gets the sum over r % time == p; other rows
  //    nothing.
  virtual void position_backward(Stream& s, const Tensor& dy, int64_t time,
                                 const GradSink& sink) = 0;

  // -- norms
  virtual void layer_norm_forward(Stream& s, const NormArgs& args) = 0;
  virtual void layer_norm_backward(Stream& s, const NormGradArgs& args) = 0;
  virtual void rms_norm_forward(Stream& s, const NormArgs& args) = 0;
  virtual void rms_norm_backward(Stream& s, const NormGradArgs& args) = 0;

  // -- rotary positions (Su et al., arXiv 2104.09864), "rotate half" form: pairs are (i, i + D/2).
  //    table f32 [Tmax, D] holds cos in columns [0, D/2) and sin in [D/2, D).
  virtual void rope_table(Stream& s, float theta, const Tensor& table) = 0;
  virtual void rope(Stream& s, const Tensor& x, const Tensor& table,
                    RopeDirection direction) = 0;  // x T [B,T,H,D], in place

  // -- attention
  virtual void attention_forward(Stream& s, const AttentionArgs& args) = 0;
  virtual void attention_backward(Stream& s, const AttentionGradArgs& args) = 0;

  // -- activations. gelu: tanh form. swiglu: x T [R, 2F] holds gate | up, y T [R, F] = silu(gate) *
  // up.
  virtual void gelu_forward(Stream& s, const Tensor& x, const Tensor& y) = 0;
  virtual void gelu_backward(Stream& s, const Tensor& x, const Tensor& dy,
                             const Tensor& dx) = 0;  // dx may be dy
  virtual void swiglu_forward(Stream& s, const Tensor& x, const Tensor& y) = 0;
  virtual void swiglu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) = 0;

  // -- linear
  virtual void matmul(Stream& s, const MatmulArgs& args) = 0;
  //    Gradient of a weight stored [N, K] for y = x W^T: the f32 product dy[R, N]^T * x[R, K],
  //    added to the sink once. Equal in bits to matmul into f32 followed by accumulate_gradient.
  virtual void weight_gradient(Stream& s, const Tensor& dy, const Tensor& x,
                               const GradSink& sink) = 0;
  //    out f32 [N] = sum of the rows of x T [R, N].
  virtual void column_sum(Stream& s, const Tensor& x, const Tensor& out) = 0;

  // -- softmax and cross-entropy, a chunk of the vocabulary at a time. logits f32 [R, Vc] are those
  // of
  //    tokens [vocabulary_begin, vocabulary_begin + Vc). targets i32 [R].
  virtual void softmax_begin(Stream& s, const SoftmaxState& state) = 0;
  virtual void softmax_update(Stream& s, const Tensor& logits, const Tensor& targets,
                              int64_t vocabulary_begin, const SoftmaxState& state) = 0;
  //    loss f64 [1] = sum over rows, in row order, of log(sum) + max - target_logit.
  virtual void softmax_loss(Stream& s, const SoftmaxState& state, const Tensor& loss) = 0;
  //    dlogits T [R, Vc] = (softmax - onehot(target)) * scale. For T = f32 it may be the same
  //    memory as logits.
  virtual void softmax_backward(Stream& s, const Tensor& logits, const Tensor& targets,
                                int64_t vocabulary_begin, const SoftmaxState& state, float scale,
                                const Tensor& dlogits) = 0;

  // -- gradients and optimizer
  virtual void accumulate_gradient(Stream& s, const Tensor& g,
                                   const GradSink& sink) = 0;  // g f32, dense
  //    out f64 [1] = sum of squares of the accumulated gradient, in an order fixed by its size.
  virtual void gradient_squared_norm(Stream& s, const GradSink& gradient, const Tensor& out) = 0;
  virtual void adamw(Stream& s, const AdamwArgs& args) = 0;
  //    The digests that adamw would give for the present state.
  virtual void state_digests(Stream& s, const Tensor& param, const Tensor& m, const Tensor& v,
                             std::span<uint64_t> digests) = 0;
};

}  // namespace perdure::kernels
