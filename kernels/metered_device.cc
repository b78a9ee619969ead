#include "kernels/metered_device.h"

#include <initializer_list>

namespace perdure::kernels {
namespace {

double bytes_of(const Tensor& t) {
  return t.is_absent()
             ? 0.0
             : static_cast<double>(t.elements()) * static_cast<double>(size_bytes(t.dtype()));
}
double bytes_of(std::initializer_list<Tensor> tensors) {
  double sum = 0.0;
  for (const Tensor& t : tensors) sum += bytes_of(t);
  return sum;
}
// An accumulator is read and written.
double bytes_of(const GradSink& sink) {
  return static_cast<double>(sink.elements) * (sink.kind == GradKind::kFixed64 ? 16.0 : 8.0);
}
double elements(const Tensor& t) { return static_cast<double>(t.elements()); }

// Causal: half of the scores. `products` of T x T x D per head.
double attention_flops(const AttentionArgs& a, double products) {
  return products * elements(a.q) * static_cast<double>(a.q.shape(1));
}

}  // namespace

class MeteredDevice::MeteredOps : public Ops {
 public:
  MeteredOps(Ops& ops, const Meter& meter, std::map<std::string_view, OpTotals>& totals)
      : ops_(ops), meter_(meter), totals_(totals) {}

  void fill_zero(Stream& s, const Tensor& x) override {
    count("fill_zero", 0, bytes_of(x), [&] { ops_.fill_zero(s, x); });
  }
  void copy(Stream& s, const Tensor& from, const Tensor& to) override {
    count("copy", 0, bytes_of({from, to}), [&] { ops_.copy(s, from, to); });
  }
  void add(Stream& s, const Tensor& x, const Tensor& y) override {
    count("add", 0, bytes_of({x, y, y}), [&] { ops_.add(s, x, y); });
  }
  void embedding_forward(Stream& s, const Tensor& tokens, const Tensor& table,
                         const Tensor& positions, int64_t t, const Tensor& y) override {
    count("embedding_forward", 0, 2 * bytes_of(y),
          [&] { ops_.embedding_forward(s, tokens, table, positions, t, y); });
  }
  void embedding_backward(Stream& s, const Tensor& tokens, const Tensor& dy,
                          const GradSink& sink) override {
    count("embedding_backward", 0, 3 * bytes_of(dy),
          [&] { ops_.embedding_backward(s, tokens, dy, sink); });
  }
  void position_backward(Stream& s, const Tensor& dy, int64_t t, const GradSink& sink) override {
    count("position_backward", 0, bytes_of(dy), [&] { ops_.position_backward(s, dy, t, sink); });
  }
  void layer_norm_forward(Stream& s, const NormArgs& a) override {
    count("norm_forward", 0, bytes_of({a.x, a.y}), [&] { ops_.layer_norm_forward(s, a); });
  }
  void layer_norm_backward(Stream& s, const NormGradArgs& a) override {
    count("norm_backward", 0, bytes_of({a.forward.x, a.dy, a.dx, a.dx}),
          [&] { ops_.layer_norm_backward(s, a); });
  }
  void rms_norm_forward(Stream& s, const NormArgs& a) override {
    count("norm_forward", 0, bytes_of({a.x, a.y}), [&] { ops_.rms_norm_forward(s, a); });
  }
  void rms_norm_backward(Stream& s, const NormGradArgs& a) override {
    count("norm_backward", 0, bytes_of({a.forward.x, a.dy, a.dx, a.dx}),
          [&] { ops_.rms_norm_backward(s, a); });
  }
  void rope_table(Stream& s, float theta, const Tensor& table) override {
    ops_.rope_table(s, theta, table);
  }
  void rope(Stream& s, const Tensor& x, const Tensor& table, RopeDirection d) override {
    count("rope", 0, 2 * bytes_of(x), [&] { ops_.rope(s, x, table, d); });
  }
  void attention_forward(Stream& s, const AttentionArgs& a) override {
    count("attention_forward", attention_flops(a, 2), bytes_of({a.q, a.k, a.v, a.out}),
          [&] { ops_.attention_forward(s, a); });
  }
  void attention_backward(Stream& s, const AttentionGradArgs& a) override {
    const AttentionArgs& f = a.forward;
    count("attention_backward", attention_flops(f, 5), 2 * bytes_of({f.q, f.k, f.v, f.out}),
          [&] { ops_.attention_backward(s, a); });
  }
  void gelu_forward(Stream& s, const Tensor& x, const Tensor& y) override {
    count("activation_forward", 0, bytes_of({x, y}), [&] { ops_.gelu_forward(s, x, y); });
  }
  void gelu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) override {
    count("activation_backward", 0, bytes_of({x, dy, dx}),
          [&] { ops_.gelu_backward(s, x, dy, dx); });
  }
  void swiglu_forward(Stream& s, const Tensor& x, const Tensor& y) override {
    count("activation_forward", 0, bytes_of({x, y}), [&] { ops_.swiglu_forward(s, x, y); });
  }
  void swiglu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) override {
    count("activation_backward", 0, bytes_of({x, dy, dx}),
          [&] { ops_.swiglu_backward(s, x, dy, dx); });
  }
  void matmul(Stream& s, const MatmulArgs& a) override {
    const double k = elements(a.a) / static_cast<double>(a.c.shape(0));
    const char* name =
        a.transpose_b == Transpose::kYes ? "matmul forward" : "matmul input gradient";
    count(name, 2 * elements(a.c) * k, bytes_of({a.a, a.b, a.c}), [&] { ops_.matmul(s, a); });
  }
  void weight_gradient(Stream& s, const Tensor& dy, const Tensor& x,
                       const GradSink& sink) override {
    count("matmul weight gradient", 2 * elements(dy) * static_cast<double>(x.shape(1)),
          bytes_of({dy, x}) + bytes_of(sink), [&] { ops_.weight_gradient(s, dy, x, sink); });
  }
  void column_sum(Stream& s, const Tensor& x, const Tensor& out) override {
    count("column_sum", 0, bytes_of(x), [&] { ops_.column_sum(s, x, out); });
  }
  void softmax_begin(Stream& s, const SoftmaxState& state) override {
    ops_.softmax_begin(s, state);
  }
  void softmax_update(Stream& s, const Tensor& logits, const Tensor& targets, int64_t begin,
                      const SoftmaxState& state) override {
    count("softmax_update", 0, bytes_of(logits),
          [&] { ops_.softmax_update(s, logits, targets, begin, state); });
  }
  void softmax_loss(Stream& s, const SoftmaxState& state, const Tensor& loss) override {
    ops_.softmax_loss(s, state, loss);
  }
  void softmax_backward(Stream& s, const Tensor& logits, const Tensor& targets, int64_t begin,
                        const SoftmaxState& state, float scale, const Tensor& dlogits) override {
    count("softmax_backward", 0, bytes_of({logits, dlogits}),
          [&] { ops_.softmax_backward(s, logits, targets, begin, state, scale, dlogits); });
  }
  void accumulate_gradient(Stream& s, const Tensor& g, const GradSink& sink) override {
    count("accumulate_gradient", 0, bytes_of(g) + bytes_of(sink),
          [&] { ops_.accumulate_gradient(s, g, sink); });
  }
  void gradient_squared_norm(Stream& s, const GradSink& g, const Tensor& out) override {
    count("gradient_squared_norm", 0, bytes_of(g) / 2,
          [&] { ops_.gradient_squared_norm(s, g, out); });
  }
  void adamw(Stream& s, const AdamwArgs& a) override {
    count("adamw", 0,
          2 * bytes_of({a.param, a.m, a.v}) + bytes_of(a.param_low) + bytes_of(a.gradient) / 2,
          [&] { ops_.adamw(s, a); });
  }
  void state_digests(Stream& s, const Tensor& p, const Tensor& m, const Tensor& v,
                     std::span<uint64_t> digests) override {
    count("state_digests", 0, bytes_of({p, m, v}),
          [&] { ops_.state_digests(s, p, m, v, digests); });
  }

 private:
  template <typename Body>
  void count(const char* name, double flops, double bytes, Body body) {
    const double begin = meter_();
    body();
    const double end = meter_();
    OpTotals& t = totals_[name];
    t.amount += end - begin;
    t.flops += flops;
    t.bytes += bytes;
    ++t.calls;
  }

  Ops& ops_;
  const Meter& meter_;
  std::map<std::string_view, OpTotals>& totals_;
};

MeteredDevice::MeteredDevice(Device& device, Meter meter)
    : device_(device),
      meter_(std::move(meter)),
      ops_(std::make_unique<MeteredOps>(device.ops(), meter_, totals_)) {}
MeteredDevice::~MeteredDevice() = default;
Ops& MeteredDevice::ops() { return *ops_; }

}  // namespace perdure::kernels
