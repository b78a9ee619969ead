#pragma once
// ReferenceOps: see ops.h for what each op does. Reduction order: always ascending index.

#include <vector>

#include "kernels/op_checks.h"
#include "kernels/ops.h"

namespace perdure::kernels::reference {

class ReferenceOps final : public Ops {
 public:
  void fill_zero(Stream& s, const Tensor& x) override;
  void copy(Stream& s, const Tensor& from, const Tensor& to) override;
  void add(Stream& s, const Tensor& x, const Tensor& y) override;
  void embedding_forward(Stream& s, const Tensor& tokens, const Tensor& table,
                         const Tensor& position_table, int64_t time, const Tensor& y) override;
  void embedding_backward(Stream& s, const Tensor& tokens, const Tensor& dy,
                          const GradSink& sink) override;
  void position_backward(Stream& s, const Tensor& dy, int64_t time, const GradSink& sink) override;
  void layer_norm_forward(Stream& s, const NormArgs& args) override;
  void layer_norm_backward(Stream& s, const NormGradArgs& args) override;
  void rms_norm_forward(Stream& s, const NormArgs& args) override;
  void rms_norm_backward(Stream& s, const NormGradArgs& args) override;
  void rope_table(Stream& s, float theta, const Tensor& table) override;
  void rope(Stream& s, const Tensor& x, const Tensor& table, RopeDirection direction) override;
  void attention_forward(Stream& s, const AttentionArgs& args) override;
  void attention_backward(Stream& s, const AttentionGradArgs& args) override;
  void gelu_forward(Stream& s, const Tensor& x, const Tensor& y) override;
  void gelu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void swiglu_forward(Stream& s, const Tensor& x, const Tensor& y) override;
  void swiglu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void matmul(Stream& s, const MatmulArgs& args) override;
  void weight_gradient(Stream& s, const Tensor& dy, const Tensor& x, const GradSink& sink) override;
  void column_sum(Stream& s, const Tensor& x, const Tensor& out) override;
  void softmax_begin(Stream& s, const SoftmaxState& state) override;
  void softmax_update(Stream& s, const Tensor& logits, const Tensor& targets,
                      int64_t vocabulary_begin, const SoftmaxState& state) override;
  void softmax_loss(Stream& s, const SoftmaxState& state, const Tensor& loss) override;
  void softmax_backward(Stream& s, const Tensor& logits, const Tensor& targets,
                        int64_t vocabulary_begin, const SoftmaxState& state, float scale,
                        const Tensor& dlogits) override;
  void accumulate_gradient(Stream& s, const Tensor& g, const GradSink& sink) override;
  void gradient_squared_norm(Stream& s, const GradSink& gradient, const Tensor& out) override;
  void adamw(Stream& s, const AdamwArgs& args) override;
  void state_digests(Stream& s, const Tensor& param, const Tensor& m, const Tensor& v,
                     std::span<uint64_t> digests) override;

 private:
  void norm_forward(const NormArgs& args, NormKind kind);
  void norm_backward(const NormGradArgs& args, NormKind kind);

  // Scratch that only grows: nothing is allocated when an op runs again with the same shapes.
  std::vector<double> a_, b_, c_, d_;
  std::vector<float> product_;
};

// Adds one f32 gradient element (flat index i) to the sink: the definition in gradient.h, word for
// word.
void add_to_sink(float g, int64_t i, const GradSink& sink);

// Element i of an accumulated gradient.
double read_gradient(const GradSink& sink, int64_t i);

}  // namespace perdure::kernels::reference
