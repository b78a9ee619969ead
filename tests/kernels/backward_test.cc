// Backward ops against finite differences of the forward ops, on the reference. The other devices
// follow from op_conformance_test.cc.

#include <cmath>

#include "kernels/linear_cross_entropy.h"
#include "kernels/op_checks.h"
#include "kernels/reference/reference_device.h"
#include "tests/kernels/workbench.h"
#include "tests/testing/matchers.h"

namespace perdure::kernels::testing {
namespace {

using ::perdure::testing::test_seed;

// A scalar function L of one operand (a view of rows), and the gradient that a backward op gave.
struct Derivative {
  Tensor x;                      // f32 [rows, cols]
  Tensor gradient;               // f32, same shape
  std::function<double()> loss;  // runs the forward ops and reduces their result
};

double weighted_sum(const Tensor& y, const Tensor& weight) {
  double sum = 0.0;
  for (int64_t r = 0; r < y.shape(0); ++r) {
    for (int64_t c = 0; c < y.shape(1); ++c) {
      sum += load_element(y, r * y.stride(0) + c) * load_element(weight, r * weight.stride(0) + c);
    }
  }
  return sum;
}

void expect_derivative(const Derivative& d, const std::string& what) {
  constexpr float kStep = 1e-2f;
  double scale = 0.0;
  for (int64_t r = 0; r < d.x.shape(0); ++r) {
    for (int64_t c = 0; c < d.x.shape(1); ++c) {
      scale = std::max(scale, std::fabs(load_element(d.gradient, r * d.gradient.stride(0) + c)));
    }
  }
  for (int64_t r = 0; r < d.x.shape(0); ++r) {
    for (int64_t c = 0; c < d.x.shape(1); ++c) {
      float& x = d.x.as<float>()[r * d.x.stride(0) + c];
      const float before = x;
      const auto at = [&](float step) {
        x = before + step;
        return d.loss();
      };
      // Fourth order: the truncation error is far below the rounding of f32.
      const double slope = (8.0 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) /
                           (12.0 * static_cast<double>(kStep));
      x = before;
      EXPECT_NEAR(load_element(d.gradient, r * d.gradient.stride(0) + c), slope,
                  2e-3 * scale + 2e-4)
          << what << " [" << r << ", " << c << "]";
    }
  }
}

class BackwardTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device_ = reference::make_reference_device({});
  Workbench w_{*device_, {0, 0, 0}, test_seed()};
  Tensor input(const std::string& name, int64_t rows, int64_t cols) {
    return w_.matrix(name, DType::kF32, rows, cols, Fill::kNormal, Role::kInOut);
  }
  Tensor zero(const std::string& name, int64_t rows, int64_t cols) {
    return w_.matrix(name, DType::kF32, rows, cols, Fill::kZero, Role::kInOut);
  }
  static Tensor as_row(const Tensor& x) {
    return Tensor::matrix(x.data(), x.dtype(), 1, x.elements());
  }
};

TEST_F(BackwardTest, Norms) {
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
    const bool layer = kind == NormKind::kLayer;
    NormGradArgs args;
    args.forward.x = input("x", 3, 7);
    args.forward.gamma = w_.vector("gamma", DType::kF32, 7, Fill::kPositive, Role::kInOut);
    if (layer) args.forward.beta = w_.vector("beta", DType::kF32, 7, Fill::kNormal, Role::kInOut);
    args.forward.y = zero("y", 3, 7);
    if (layer) args.forward.mean = w_.vector("mean", DType::kF32, 3, Fill::kZero, Role::kInOut);
    args.forward.rstd = w_.vector("rstd", DType::kF32, 3, Fill::kZero, Role::kInOut);
    args.dy = input("dy", 3, 7);
    args.dx = zero("dx", 3, 7);
    args.dgamma = w_.vector("dgamma", DType::kF32, 7, Fill::kZero, Role::kInOut);
    if (layer) args.dbeta = w_.vector("dbeta", DType::kF32, 7, Fill::kZero, Role::kInOut);
    const auto forward = [&] {
      layer ? w_.ops().layer_norm_forward(w_.stream(), args.forward)
            : w_.ops().rms_norm_forward(w_.stream(), args.forward);
      return weighted_sum(args.forward.y, args.dy);
    };
    forward();
    layer ? w_.ops().layer_norm_backward(w_.stream(), args)
          : w_.ops().rms_norm_backward(w_.stream(), args);
    expect_derivative({args.forward.x, args.dx, forward}, "x");
    expect_derivative({as_row(args.forward.gamma), as_row(args.dgamma), forward}, "gamma");
    if (layer) expect_derivative({as_row(args.forward.beta), as_row(args.dbeta), forward}, "beta");
  }
}

TEST_F(BackwardTest, Gelu) {
  const Tensor x = input("x", 2, 9);
  const Tensor y = zero("y", 2, 9);
  const Tensor dy = input("dy", 2, 9);
  const Tensor dx = zero("dx", 2, 9);
  w_.ops().gelu_backward(w_.stream(), x, dy, dx);
  expect_derivative({x, dx,
                     [&] {
                       w_.ops().gelu_forward(w_.stream(), x, y);
                       return weighted_sum(y, dy);
                     }},
                    "gelu");
}

TEST_F(BackwardTest, Swiglu) {
  const Tensor x = input("x", 2, 10);
  const Tensor y = zero("y", 2, 5);
  const Tensor dy = input("dy", 2, 5);
  const Tensor dx = zero("dx", 2, 10);
  w_.ops().swiglu_backward(w_.stream(), x, dy, dx);
  expect_derivative({x, dx,
                     [&] {
                       w_.ops().swiglu_forward(w_.stream(), x, y);
                       return weighted_sum(y, dy);
                     }},
                    "swiglu");
}

TEST_F(BackwardTest, RopeInverseIsTheTransposeOfForward) {
  const Tensor x = input("x", 3, 8);
  const Tensor dy = input("dy", 3, 8);
  const Tensor y = zero("y", 3, 8);
  const Tensor dx = zero("dx", 3, 8);
  const Tensor table = zero("table", 3, 4);
  w_.ops().rope_table(w_.stream(), 100.0f, table);
  w_.ops().copy(w_.stream(), dy, dx);
  w_.ops().rope(w_.stream(), dx.as_heads(1, 3, 2, 4), table, RopeDirection::kInverse);
  expect_derivative({x, dx,
                     [&] {
                       w_.ops().copy(w_.stream(), x, y);
                       w_.ops().rope(w_.stream(), y.as_heads(1, 3, 2, 4), table,
                                     RopeDirection::kForward);
                       return weighted_sum(y, dy);
                     }},
                    "rope");
}

TEST_F(BackwardTest, AttentionWithSharedKeyHeads) {
  const int64_t time = 4;
  const auto four = [&](const Tensor& x, int64_t heads) { return x.as_heads(1, time, heads, 3); };
  const Tensor q = input("q", time, 6), k = input("k", time, 3), v = input("v", time, 3);
  const Tensor out = zero("out", time, 6), dout = input("dout", time, 6);
  const Tensor dq = zero("dq", time, 6), dk = zero("dk", time, 3), dv = zero("dv", time, 3);
  const Tensor lse = w_.dense("lse", DType::kF32, {1, 2, time}, Fill::kZero, Role::kInOut);
  AttentionGradArgs args;
  args.forward = {four(q, 2), four(k, 1), four(v, 1), four(out, 2), lse, 0.6f};
  args.dout = four(dout, 2);
  args.dq = four(dq, 2);
  args.dk = four(dk, 1);
  args.dv = four(dv, 1);
  const auto forward = [&] {
    w_.ops().attention_forward(w_.stream(), args.forward);
    return weighted_sum(out, dout);
  };
  forward();
  w_.ops().attention_backward(w_.stream(), args);
  expect_derivative({q, dq, forward}, "q");
  expect_derivative({k, dk, forward}, "k");
  expect_derivative({v, dv, forward}, "v");
}

TEST_F(BackwardTest, LinearCrossEntropy) {
  LinearCrossEntropyArgs args;
  args.hidden = input("hidden", 4, 5);
  args.weight = input("weight", 11, 5);
  args.targets = w_.tokens("targets", 4, 11);
  args.loss = w_.vector("loss", DType::kF64, 1, Fill::kZero, Role::kInOut);
  args.dhidden = zero("dhidden", 4, 5);
  const Tensor dweight = w_.dense("dweight", DType::kF32, {11, 5}, Fill::kZero, Role::kInOut);
  args.weight_gradient.accumulator = dweight.data();
  args.weight_gradient.elements = 55;
  args.workspace =
      w_.workspace(linear_cross_entropy_workspace_bytes({4, 5, 11, DType::kF32, args.keep}));
  linear_cross_entropy(w_.ops(), w_.stream(), args);
  const auto forward = [&] {
    linear_cross_entropy_forward(w_.ops(), w_.stream(), args);
    return *args.loss.as<double>();
  };
  expect_derivative({args.hidden, args.dhidden, forward}, "hidden");
  expect_derivative({args.weight, dweight, forward}, "weight");
}

TEST_F(BackwardTest, EmbeddingsAndProducts) {
  const Tensor tokens = w_.tokens("tokens", 6, 4);
  const Tensor table = input("table", 4, 3), positions = input("positions", 3, 3);
  const Tensor y = zero("y", 6, 3), dy = input("dy", 6, 3);
  const Tensor dtable = w_.dense("dtable", DType::kF32, {4, 3}, Fill::kZero, Role::kInOut);
  const Tensor dpositions = w_.dense("dpositions", DType::kF32, {3, 3}, Fill::kZero, Role::kInOut);
  GradSink sink;
  sink.accumulator = dtable.data();
  sink.elements = 12;
  w_.ops().embedding_backward(w_.stream(), tokens, dy, sink);
  sink.accumulator = dpositions.data();
  sink.elements = 9;
  w_.ops().position_backward(w_.stream(), dy, 3, sink);
  const auto forward = [&] {
    w_.ops().embedding_forward(w_.stream(), tokens, table, positions, 3, y);
    return weighted_sum(y, dy);
  };
  expect_derivative({table, dtable, forward}, "table");
  expect_derivative({positions, dpositions, forward}, "positions");

  const Tensor weight = input("weight", 2, 3), z = zero("z", 6, 2), dz = input("dz", 6, 2);
  const Tensor dweight = w_.dense("dweight", DType::kF32, {2, 3}, Fill::kZero, Role::kInOut);
  sink.accumulator = dweight.data();
  sink.elements = 6;
  w_.ops().weight_gradient(w_.stream(), dz, dy, sink);
  expect_derivative({weight, dweight,
                     [&] {
                       w_.ops().matmul(
                           w_.stream(),
                           {.a = dy, .b = weight, .c = z, .transpose_b = Transpose::kYes});
                       return weighted_sum(z, dz);
                     }},
                    "weight");
}

}  // namespace
}  // namespace perdure::kernels::testing
