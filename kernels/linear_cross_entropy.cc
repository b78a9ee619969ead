#include "kernels/linear_cross_entropy.h"

#include <algorithm>

#include "kernels/op_checks.h"

namespace perdure::kernels {
namespace {

constexpr int64_t kAlignment = 64;

enum class Form { kFull, kForward };

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Where everything lies in the workspace, in bytes.
struct Layout {
  int64_t chunk = 0;         // vocabulary rows of one chunk
  bool kept = false;         // one logits buffer per chunk, or one for all
  int64_t logits_bytes = 0;  // of one chunk
  int64_t state = 0;         // three f32 [R]
  int64_t dhidden = 0;       // f32 [R, C]
  int64_t dlogits = 0;       // T [R, chunk]; f32 reuses the logits
  int64_t logits = 0;
  int64_t total = 0;
};

Layout plan_layout(const LinearCrossEntropyShape& shape, Form form) {
  CHECK(shape.rows >= 0 && shape.width > 0);
  CHECK_GT(shape.vocabulary, 0);
  Layout layout;
  layout.chunk = std::min(shape.vocabulary, kVocabularyChunk);
  const int64_t chunks = (shape.vocabulary + layout.chunk - 1) / layout.chunk;
  layout.kept = form == Form::kFull && shape.keep == KeepLogits::kWhenTheyFit &&
                shape.rows * shape.vocabulary * 4 <= kKeptLogitsBytesMax;
  layout.logits_bytes = aligned(shape.rows * layout.chunk * 4);
  const int64_t state_bytes = aligned(shape.rows * 4);
  int64_t at = 3 * state_bytes;
  layout.dhidden = at;
  if (form == Form::kFull) at += aligned(shape.rows * shape.width * 4);
  layout.dlogits = at;
  if (form == Form::kFull && shape.dtype == DType::kBF16)
    at += aligned(shape.rows * layout.chunk * 2);
  layout.logits = at;
  at += layout.logits_bytes * (layout.kept ? chunks : 1);
  layout.total = at;
  return layout;
}

// One call's views.
class Computation {
 public:
  Computation(Ops& ops, Stream& stream, const LinearCrossEntropyArgs& args, Form form)
      : ops_(ops), stream_(stream), args_(args) {
    const MatrixShape hidden = check_matrix(args.hidden);
    const MatrixShape weight = check_matrix(args.weight);
    CHECK_EQ(hidden.cols, weight.cols);
    CHECK(args.hidden.dtype() == args.weight.dtype());
    shape_ = {hidden.rows, hidden.cols, weight.rows, args.hidden.dtype(), args.keep};
    layout_ = plan_layout(shape_, form);
    CHECK_GE(args.workspace.size(), static_cast<size_t>(layout_.total));
    CHECK_EQ(reinterpret_cast<uintptr_t>(args.workspace.data()) % kAlignment, 0u);
    const int64_t state_bytes = aligned(shape_.rows * 4);
    state_.max = Tensor::vector(at(0), DType::kF32, shape_.rows);
    state_.sum = Tensor::vector(at(state_bytes), DType::kF32, shape_.rows);
    state_.target_logit = Tensor::vector(at(2 * state_bytes), DType::kF32, shape_.rows);
  }

  void run_forward() {
    ops_.softmax_begin(stream_, state_);
    for (int64_t begin = 0; begin < shape_.vocabulary; begin += layout_.chunk) {
      compute_logits(begin);
      ops_.softmax_update(stream_, logits(begin), args_.targets, begin, state_);
    }
    ops_.softmax_loss(stream_, state_, args_.loss);
  }

  void run_backward() {
    check_same_shape(args_.hidden, args_.dhidden);
    CHECK(args_.dhidden.dtype() == shape_.dtype);
    CHECK_EQ(args_.weight_gradient.elements, shape_.vocabulary * shape_.width);
    const Tensor sum = Tensor::matrix(at(layout_.dhidden), DType::kF32, shape_.rows, shape_.width);
    for (int64_t begin = 0; begin < shape_.vocabulary; begin += layout_.chunk) {
      if (!layout_.kept && shape_.vocabulary > layout_.chunk) compute_logits(begin);
      const int64_t count = size_of_chunk(begin);
      const Tensor gradient = dlogits(begin);
      ops_.softmax_backward(stream_, logits(begin), args_.targets, begin, state_, args_.scale,
                            gradient);
      MatmulArgs product{.a = gradient, .b = args_.weight.rows(begin, count), .c = sum};
      if (begin > 0) product.accumulate = Accumulate::kAdd;
      ops_.matmul(stream_, product);
      ops_.weight_gradient(
          stream_, gradient, args_.hidden,
          sub_sink(args_.weight_gradient, begin * shape_.width, count * shape_.width));
    }
    ops_.copy(stream_, sum, args_.dhidden);
  }

 private:
  std::byte* at(int64_t offset) const { return args_.workspace.data() + offset; }
  int64_t size_of_chunk(int64_t begin) const {
    return std::min(layout_.chunk, shape_.vocabulary - begin);
  }

  Tensor logits(int64_t begin) const {
    const int64_t index = layout_.kept ? begin / layout_.chunk : 0;
    return Tensor::matrix(at(layout_.logits + index * layout_.logits_bytes), DType::kF32,
                          shape_.rows, size_of_chunk(begin));
  }

  Tensor dlogits(int64_t begin) const {
    if (shape_.dtype == DType::kF32) return logits(begin);
    return Tensor::matrix(at(layout_.dlogits), shape_.dtype, shape_.rows, size_of_chunk(begin));
  }

  void compute_logits(int64_t begin) {
    ops_.matmul(stream_, {.a = args_.hidden,
                          .b = args_.weight.rows(begin, size_of_chunk(begin)),
                          .c = logits(begin),
                          .transpose_b = Transpose::kYes});
  }

  Ops& ops_;
  Stream& stream_;
  const LinearCrossEntropyArgs& args_;
  LinearCrossEntropyShape shape_;
  Layout layout_;
  SoftmaxState state_;
};

}  // namespace

size_t linear_cross_entropy_workspace_bytes(const LinearCrossEntropyShape& shape) {
  return static_cast<size_t>(plan_layout(shape, Form::kFull).total);
}

size_t linear_cross_entropy_forward_workspace_bytes(const LinearCrossEntropyShape& shape) {
  return static_cast<size_t>(plan_layout(shape, Form::kForward).total);
}

void linear_cross_entropy(Ops& ops, Stream& stream, const LinearCrossEntropyArgs& args) {
  Computation computation(ops, stream, args, Form::kFull);
  computation.run_forward();
  computation.run_backward();
}

void linear_cross_entropy_forward(Ops& ops, Stream& stream, const LinearCrossEntropyArgs& args) {
  Computation(ops, stream, args, Form::kForward).run_forward();
}

}  // namespace perdure::kernels
