#include "tests/kernels/op_cases.h"

#include <cmath>

#include "kernels/linear_cross_entropy.h"
#include "kernels/op_checks.h"

namespace perdure::kernels::testing {
namespace {

constexpr DType kComputeTypes[] = {DType::kF32, DType::kBF16};
constexpr GradKind kKinds[] = {GradKind::kFloat, GradKind::kFixed32, GradKind::kFixed64};

std::string text(DType dtype) { return std::string(to_string(dtype)); }
std::string text(GradKind kind) {
  return kind == GradKind::kFloat ? "float" : kind == GradKind::kFixed32 ? "fixed32" : "fixed64";
}
template <typename... Parts>
std::string name_of(const Parts&... parts) {
  std::string name;
  const auto append = [&](const auto& part) {
    if (!name.empty()) name += '_';
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      name += std::to_string(part);
    } else {
      name += part;
    }
  };
  (append(parts), ...);
  return name;
}

struct Size {
  int64_t rows, cols;
};
constexpr Size kSizes[] = {{1, 1}, {1, 257}, {3, 7}, {17, 64}, {37, 129}, {70, 768}, {130, 31}};

}  // namespace

OutputTolerance tolerance_of(DType dtype, int64_t terms) {
  const double growth = 1.0 + std::sqrt(static_cast<double>(terms)) / 8.0;
  if (dtype == DType::kBF16) return {0x1p-7, 2e-3 * growth};
  return {4e-6 * growth, 2e-6 * growth};
}

std::vector<OpCase> data_cases() {
  std::vector<OpCase> cases;
  for (const Size size : kSizes) {
    const auto [rows, cols] = size;
    cases.push_back(
        {name_of("fill_zero", rows, cols), [=](Workbench& w) {
           const Tensor x = w.dense("x", DType::kF32, {rows, cols}, Fill::kNormal, Role::kInOut);
           return [=, &w] { w.ops().fill_zero(w.stream(), x); };
         }});
    for (const DType from : kComputeTypes) {
      for (const DType to : kComputeTypes) {
        cases.push_back({name_of("copy", text(from), text(to), rows, cols), [=](Workbench& w) {
                           const Tensor x =
                               w.matrix("x", from, rows, cols, Fill::kNormal, Role::kInput);
                           const Tensor y =
                               w.matrix("y", to, rows, cols, Fill::kPoison, Role::kOutput);
                           return [=, &w] { w.ops().copy(w.stream(), x, y); };
                         }});
      }
      cases.push_back({name_of("add", text(from), rows, cols), [=](Workbench& w) {
                         const Tensor x =
                             w.matrix("x", from, rows, cols, Fill::kNormal, Role::kInput);
                         w.set_tolerance(tolerance_of(DType::kF32, 1));
                         const Tensor y =
                             w.matrix("y", DType::kF32, rows, cols, Fill::kNormal, Role::kInOut);
                         return [=, &w] { w.ops().add(w.stream(), x, y); };
                       }});
      cases.push_back(
          {name_of("embedding_forward", text(from), rows, cols), [=](Workbench& w) {
             const int64_t time = std::max<int64_t>(1, rows / 2);
             const Tensor tokens = w.tokens("tokens", rows, 19);
             const Tensor table = w.matrix("table", from, 19, cols, Fill::kNormal, Role::kInput);
             const Tensor positions =
                 rows == 3 ? Tensor()
                           : w.matrix("positions", from, time, cols, Fill::kNormal, Role::kInput);
             w.set_tolerance(tolerance_of(DType::kF32, 1));
             const Tensor y = w.matrix("y", DType::kF32, rows, cols, Fill::kPoison, Role::kOutput);
             return [=, &w] {
               w.ops().embedding_forward(w.stream(), tokens, table, positions, time, y);
             };
           }});
    }
    for (const GradKind kind : kKinds) {
      cases.push_back(
          {name_of("embedding_backward", text(kind), rows, cols), [=](Workbench& w) {
             const Tensor tokens = w.tokens("tokens", rows, 11);
             const Tensor dy = w.matrix("dy", DType::kF32, rows, cols, Fill::kNormal, Role::kInput);
             const GradSink sink = w.sink("sink", kind, 13 * cols, 64);
             return [=, &w] { w.ops().embedding_backward(w.stream(), tokens, dy, sink); };
           }});
      cases.push_back({name_of("position_backward", text(kind), rows, cols), [=](Workbench& w) {
                         const int64_t time = std::max<int64_t>(1, rows / 3);
                         const Tensor dy =
                             w.matrix("dy", DType::kF32, rows, cols, Fill::kNormal, Role::kInput);
                         const GradSink sink = w.sink("sink", kind, (time + 2) * cols, 128);
                         return [=, &w] { w.ops().position_backward(w.stream(), dy, time, sink); };
                       }});
    }
  }
  return cases;
}

namespace {

NormArgs make_norm(Workbench& w, NormKind kind, DType dtype, int64_t rows, int64_t cols,
                   Role y_role) {
  NormArgs args;
  args.x = w.matrix("x", DType::kF32, rows, cols, Fill::kNormal, Role::kInput);
  args.gamma = w.vector("gamma", DType::kF32, cols, Fill::kPositive, Role::kInput);
  if (kind == NormKind::kLayer && cols != 7) {
    args.beta = w.vector("beta", DType::kF32, cols, Fill::kNormal, Role::kInput);
  }
  w.set_tolerance(tolerance_of(dtype, cols));
  args.y = w.matrix("y", dtype, rows, cols, Fill::kPoison, y_role);
  w.set_tolerance(tolerance_of(DType::kF32, cols));
  if (kind == NormKind::kLayer) {
    args.mean = w.vector("mean", DType::kF32, rows, Fill::kSmall, Role::kInOut);
  }
  args.rstd = w.vector("rstd", DType::kF32, rows, Fill::kPositive, Role::kInOut);
  args.epsilon = cols == 1 ? 1.0f : 1e-5f;
  return args;
}

}  // namespace

std::vector<OpCase> norm_cases() {
  std::vector<OpCase> cases;
  for (const auto [rows, cols] : kSizes) {
    for (const DType dtype : kComputeTypes) {
      for (const NormKind kind : {NormKind::kLayer, NormKind::kRms}) {
        const std::string norm = kind == NormKind::kLayer ? "layer_norm" : "rms_norm";
        const int64_t r = rows;
        const int64_t c = cols;
        cases.push_back({name_of(norm + "_forward", text(dtype), rows, cols), [=](Workbench& w) {
                           const NormArgs args = make_norm(w, kind, dtype, r, c, Role::kOutput);
                           return [=, &w] {
                             kind == NormKind::kLayer ? w.ops().layer_norm_forward(w.stream(), args)
                                                      : w.ops().rms_norm_forward(w.stream(), args);
                           };
                         }});
        cases.push_back(
            {name_of(norm + "_backward", text(dtype), rows, cols), [=](Workbench& w) {
               NormGradArgs args;
               args.forward = make_norm(w, kind, dtype, r, c, Role::kInput);
               args.dy = w.matrix("dy", dtype, r, c, Fill::kNormal, Role::kInput);
               w.set_tolerance(tolerance_of(DType::kF32, c + r));
               args.dx = w.matrix("dx", DType::kF32, r, c, Fill::kNormal, Role::kInOut);
               args.dgamma = w.vector("dgamma", DType::kF32, c, Fill::kPoison, Role::kOutput);
               if (!args.forward.beta.is_absent()) {
                 args.dbeta = w.vector("dbeta", DType::kF32, c, Fill::kPoison, Role::kOutput);
               }
               return [=, &w] {
                 kind == NormKind::kLayer ? w.ops().layer_norm_backward(w.stream(), args)
                                          : w.ops().rms_norm_backward(w.stream(), args);
               };
             }});
      }
    }
  }
  return cases;
}

std::vector<OpCase> activation_cases() {
  std::vector<OpCase> cases;
  for (const auto [rows_, cols_] : kSizes) {
    const int64_t rows = rows_;
    const int64_t cols = cols_;
    for (const DType dtype : kComputeTypes) {
      const OutputTolerance close = tolerance_of(dtype, 1);
      cases.push_back({name_of("gelu_forward", text(dtype), rows, cols), [=](Workbench& w) {
                         const Tensor x =
                             w.matrix("x", dtype, rows, cols, Fill::kNormal, Role::kInput);
                         w.set_tolerance(close);
                         const Tensor y =
                             w.matrix("y", dtype, rows, cols, Fill::kPoison, Role::kOutput);
                         return [=, &w] { w.ops().gelu_forward(w.stream(), x, y); };
                       }});
      cases.push_back(
          {name_of("gelu_backward", text(dtype), rows, cols), [=](Workbench& w) {
             const Tensor x = w.matrix("x", dtype, rows, cols, Fill::kNormal, Role::kInput);
             w.set_tolerance(close);
             const bool in_place = rows == 17;
             const Tensor dy = w.matrix("dy", dtype, rows, cols, Fill::kNormal,
                                        in_place ? Role::kInOut : Role::kInput);
             const Tensor dx =
                 in_place ? dy : w.matrix("dx", dtype, rows, cols, Fill::kPoison, Role::kOutput);
             return [=, &w] { w.ops().gelu_backward(w.stream(), x, dy, dx); };
           }});
      cases.push_back({name_of("swiglu_forward", text(dtype), rows, cols), [=](Workbench& w) {
                         const Tensor x =
                             w.matrix("x", dtype, rows, 2 * cols, Fill::kNormal, Role::kInput);
                         w.set_tolerance(close);
                         const Tensor y =
                             w.matrix("y", dtype, rows, cols, Fill::kPoison, Role::kOutput);
                         return [=, &w] { w.ops().swiglu_forward(w.stream(), x, y); };
                       }});
      cases.push_back(
          {name_of("swiglu_backward", text(dtype), rows, cols), [=](Workbench& w) {
             const Tensor x = w.matrix("x", dtype, rows, 2 * cols, Fill::kNormal, Role::kInput);
             const Tensor dy = w.matrix("dy", dtype, rows, cols, Fill::kNormal, Role::kInput);
             w.set_tolerance(close);
             const Tensor dx = w.matrix("dx", dtype, rows, 2 * cols, Fill::kPoison, Role::kOutput);
             return [=, &w] { w.ops().swiglu_backward(w.stream(), x, dy, dx); };
           }});
      cases.push_back({name_of("column_sum", text(dtype), rows, cols), [=](Workbench& w) {
                         const Tensor x =
                             w.matrix("x", dtype, rows, cols, Fill::kNormal, Role::kInput);
                         w.set_tolerance(tolerance_of(DType::kF32, rows));
                         const Tensor out =
                             w.vector("out", DType::kF32, cols, Fill::kPoison, Role::kOutput);
                         return [=, &w] { w.ops().column_sum(w.stream(), x, out); };
                       }});
    }
  }
  return cases;
}

namespace {

struct Heads {
  int64_t batch, time, heads, kv_heads, head_size;
};
// MHA, GQA and MQA; one row; tiles that are full, nearly full and just begun; usual and odd head
// sizes.
constexpr Heads kHeads[] = {{1, 1, 1, 1, 16},   {2, 7, 4, 2, 24},   {1, 64, 2, 2, 64},
                            {2, 65, 3, 1, 32},  {1, 63, 2, 1, 128}, {1, 129, 2, 2, 64},
                            {1, 200, 4, 2, 16}, {1, 79, 6, 3, 10},  {3, 16, 2, 2, 2},
                            {1, 130, 1, 1, 72}};

// dq and dk contain dP - dout . out, where out was rounded to T.
OutputTolerance attention_grad_tolerance(DType dtype, const Heads& n) {
  OutputTolerance tolerance = tolerance_of(dtype, 2 * (n.time + n.head_size));
  if (dtype == DType::kBF16) tolerance.spread = 0.03;
  tolerance.absolute = 1e-6;
  return tolerance;
}

AttentionArgs make_attention(Workbench& w, DType dtype, const Heads& n, Role out_role) {
  AttentionArgs args;
  args.scale = 1.0f / std::sqrt(static_cast<float>(n.head_size));
  args.q = w.heads("q", dtype, n.batch, n.time, n.heads, n.head_size, Fill::kNormal, Role::kInput);
  args.k =
      w.heads("k", dtype, n.batch, n.time, n.kv_heads, n.head_size, Fill::kNormal, Role::kInput);
  args.v =
      w.heads("v", dtype, n.batch, n.time, n.kv_heads, n.head_size, Fill::kNormal, Role::kInput);
  w.set_tolerance(tolerance_of(dtype, n.time + n.head_size));
  args.out = w.heads("out", dtype, n.batch, n.time, n.heads, n.head_size, Fill::kPoison, out_role);
  w.set_tolerance(tolerance_of(DType::kF32, n.time + n.head_size));
  args.lse = w.dense("lse", DType::kF32, {n.batch, n.heads, n.time}, Fill::kPoison, out_role);
  return args;
}

}  // namespace

std::vector<OpCase> attention_cases() {
  std::vector<OpCase> cases;
  for (const Heads& n : kHeads) {
    for (const DType dtype : kComputeTypes) {
      const std::string shape =
          name_of(text(dtype), n.batch, n.time, n.heads, n.kv_heads, n.head_size);
      cases.push_back({name_of("attention_forward", shape), [=](Workbench& w) {
                         const AttentionArgs args = make_attention(w, dtype, n, Role::kOutput);
                         return [=, &w] { w.ops().attention_forward(w.stream(), args); };
                       }});
      cases.push_back({name_of("attention_backward", shape), [=](Workbench& w) {
                         AttentionGradArgs args;
                         args.forward = make_attention(w, dtype, n, Role::kOutput);
                         args.dout = w.heads("dout", dtype, n.batch, n.time, n.heads, n.head_size,
                                             Fill::kNormal, Role::kInput);
                         w.set_tolerance(attention_grad_tolerance(dtype, n));
                         args.dq = w.heads("dq", dtype, n.batch, n.time, n.heads, n.head_size,
                                           Fill::kPoison, Role::kOutput);
                         args.dk = w.heads("dk", dtype, n.batch, n.time, n.kv_heads, n.head_size,
                                           Fill::kPoison, Role::kOutput);
                         args.dv = w.heads("dv", dtype, n.batch, n.time, n.kv_heads, n.head_size,
                                           Fill::kPoison, Role::kOutput);
                         return [=, &w] {
                           w.ops().attention_forward(w.stream(), args.forward);
                           w.ops().attention_backward(w.stream(), args);
                         };
                       }});
      if (n.head_size % 2 != 0) continue;
      for (const RopeDirection direction : {RopeDirection::kForward, RopeDirection::kInverse}) {
        const std::string way = direction == RopeDirection::kForward ? "forward" : "inverse";
        cases.push_back({name_of("rope", way, shape), [=](Workbench& w) {
                           w.set_tolerance(tolerance_of(dtype, 1));
                           const Tensor x = w.heads("x", dtype, n.batch, n.time, n.heads,
                                                    n.head_size, Fill::kNormal, Role::kInOut);
                           w.set_tolerance(tolerance_of(DType::kF32, 1));
                           const Tensor table =
                               w.dense("table", DType::kF32, {n.time + 1, n.head_size},
                                       Fill::kPoison, Role::kOutput);
                           return [=, &w] {
                             w.ops().rope_table(w.stream(), 10000.0f, table);
                             w.ops().rope(w.stream(), x, table, direction);
                           };
                         }});
      }
    }
  }
  return cases;
}

namespace {

struct Product {
  int64_t m, n, k;
};
constexpr Product kProducts[] = {{1, 1, 1},      {1, 64, 3},     {3, 5, 7},       {17, 31, 257},
                                 {64, 64, 64},   {129, 385, 96}, {130, 257, 33},  {256, 800, 64},
                                 {300, 17, 129}, {513, 770, 40}, {64, 1000, 300}, {33, 130, 1024},
                                 {70, 400, 770}};

}  // namespace

std::vector<OpCase> matmul_cases() {
  std::vector<OpCase> cases;
  for (const auto [m_, n_, k_] : kProducts) {
    const int64_t m = m_;
    const int64_t n = n_;
    const int64_t k = k_;
    for (const DType dtype : kComputeTypes) {
      for (int variant = 0; variant < 8; ++variant) {
        const bool ta = (variant & 1) != 0;
        const bool tb = (variant & 2) != 0;
        const bool extra = (variant & 4) != 0;  // bias and accumulation
        for (const DType out : kComputeTypes) {
          if (out != DType::kF32 && out != dtype) continue;
          const std::string name =
              name_of("matmul", text(dtype), text(out), m, n, k, ta ? "ta" : "na", tb ? "tb" : "nb",
                      extra ? "bias_add" : "plain");
          cases.push_back(
              {name, [=](Workbench& w) {
                 MatmulArgs args;
                 args.a = w.matrix("a", dtype, ta ? k : m, ta ? m : k, Fill::kNormal, Role::kInput);
                 args.b = w.matrix("b", dtype, tb ? n : k, tb ? k : n, Fill::kNormal, Role::kInput);
                 if (extra)
                   args.bias = w.vector("bias", DType::kF32, n, Fill::kNormal, Role::kInput);
                 w.set_tolerance(tolerance_of(out, k));
                 args.c =
                     w.matrix("c", out, m, n, extra ? Fill::kNormal : Fill::kPoison, Role::kInOut);
                 args.transpose_a = ta ? Transpose::kYes : Transpose::kNo;
                 args.transpose_b = tb ? Transpose::kYes : Transpose::kNo;
                 args.accumulate = extra ? Accumulate::kAdd : Accumulate::kOverwrite;
                 return [=, &w] { w.ops().matmul(w.stream(), args); };
               }});
        }
      }
      for (const GradKind kind : kKinds) {
        cases.push_back(
            {name_of("weight_gradient", text(dtype), text(kind), m, n, k), [=](Workbench& w) {
               const Tensor dy = w.matrix("dy", dtype, k, m, Fill::kNormal, Role::kInput);
               const Tensor x = w.matrix("x", dtype, k, n, Fill::kNormal, Role::kInput);
               w.set_tolerance(tolerance_of(DType::kF32, k));
               const GradSink sink = w.sink("sink", kind, m * n, 256);
               return [=, &w] { w.ops().weight_gradient(w.stream(), dy, x, sink); };
             }});
      }
    }
  }
  return cases;
}

namespace {

SoftmaxState make_state(Workbench& w, int64_t rows) {
  SoftmaxState state;
  w.set_tolerance(tolerance_of(DType::kF32, 64));
  state.max = w.vector("max", DType::kF32, rows, Fill::kPoison, Role::kOutput);
  state.sum = w.vector("sum", DType::kF32, rows, Fill::kPoison, Role::kOutput);
  state.target_logit = w.vector("target_logit", DType::kF32, rows, Fill::kPoison, Role::kOutput);
  return state;
}

OpCase softmax_case(DType dtype, int64_t rows, int64_t vocabulary, int64_t chunk, bool in_place) {
  return {name_of("softmax", text(dtype), rows, vocabulary, chunk, in_place ? "in_place" : "apart"),
          [=](Workbench& w) {
            const Tensor targets = w.tokens("targets", rows, vocabulary);
            w.set_tolerance(tolerance_of(DType::kF32, 64));
            const Tensor logits = w.matrix("logits", DType::kF32, rows, vocabulary, Fill::kNormal,
                                           in_place ? Role::kInOut : Role::kInput);
            const SoftmaxState state = make_state(w, rows);
            w.set_tolerance(tolerance_of(dtype, 64));
            const Tensor dlogits = in_place ? logits
                                            : w.matrix("dlogits", dtype, rows, vocabulary,
                                                       Fill::kPoison, Role::kOutput);
            w.set_tolerance({1e-6, 1e-6});
            const Tensor loss = w.vector("loss", DType::kF64, 1, Fill::kPoison, Role::kOutput);
            return [=, &w] {
              Ops& ops = w.ops();
              ops.softmax_begin(w.stream(), state);
              for (int64_t at = 0; at < vocabulary; at += chunk) {
                const int64_t n = std::min(chunk, vocabulary - at);
                ops.softmax_update(w.stream(), logits.columns(at, n), targets, at, state);
              }
              ops.softmax_loss(w.stream(), state, loss);
              for (int64_t at = 0; at < vocabulary; at += chunk) {
                const int64_t n = std::min(chunk, vocabulary - at);
                ops.softmax_backward(w.stream(), logits.columns(at, n), targets, at, state, 0.25f,
                                     dlogits.columns(at, n));
              }
            };
          }};
}

OpCase linear_cross_entropy_case(DType dtype, GradKind kind, int64_t rows, int64_t width,
                                 int64_t vocabulary) {
  return {name_of("linear_cross_entropy", text(dtype), text(kind), rows, width, vocabulary),
          [=](Workbench& w) {
            LinearCrossEntropyArgs args;
            args.hidden = w.matrix("hidden", dtype, rows, width, Fill::kNormal, Role::kInput);
            args.weight = w.matrix("weight", dtype, vocabulary, width, Fill::kSmall, Role::kInput);
            args.targets = w.tokens("targets", rows, vocabulary);
            args.scale = 0.5f;
            w.set_tolerance({2e-6, 2e-6});
            args.loss = w.vector("loss", DType::kF64, 1, Fill::kPoison, Role::kOutput);
            w.set_tolerance(tolerance_of(dtype, vocabulary / 16 + width));
            args.dhidden = w.matrix("dhidden", dtype, rows, width, Fill::kPoison, Role::kOutput);
            args.weight_gradient = w.sink("sink", kind, vocabulary * width, 64);
            args.workspace = w.workspace(
                linear_cross_entropy_workspace_bytes({rows, width, vocabulary, dtype, args.keep}));
            return [=, &w] { linear_cross_entropy(w.ops(), w.stream(), args); };
          }};
}

}  // namespace

std::vector<OpCase> loss_cases() {
  std::vector<OpCase> cases;
  for (const DType dtype : kComputeTypes) {
    for (const bool in_place : {false, true}) {
      if (in_place && dtype != DType::kF32) continue;
      cases.push_back(softmax_case(dtype, 1, 1, 1, in_place));
      cases.push_back(softmax_case(dtype, 5, 257, 257, in_place));
      cases.push_back(softmax_case(dtype, 33, 257, 100, in_place));
      cases.push_back(softmax_case(dtype, 19, 1105, 512, in_place));
      cases.push_back(softmax_case(dtype, 70, 1024, 1024, in_place));
    }
    for (const GradKind kind : kKinds) {
      cases.push_back(linear_cross_entropy_case(dtype, kind, 5, 16, 257));
      cases.push_back(linear_cross_entropy_case(dtype, kind, 9, 24, kVocabularyChunk + 337));
    }
  }
  return cases;
}

namespace {

OpCase adamw_case(GradKind kind, bool low, double multiplier, int64_t elements) {
  return {
      name_of("adamw", text(kind), low ? "low" : "plain", multiplier == 1.0 ? "as_is" : "scaled",
              elements),
      [=](Workbench& w) {
        AdamwArgs args;
        w.set_tolerance(tolerance_of(DType::kF32, 1));
        args.param = w.vector("param", DType::kF32, elements, Fill::kNormal, Role::kInOut);
        args.m = w.vector("m", DType::kF32, elements, Fill::kSmall, Role::kInOut);
        args.v = w.vector("v", DType::kF32, elements, Fill::kPositive, Role::kInOut);
        w.set_tolerance(tolerance_of(DType::kBF16, 1));
        if (low)
          args.param_low = w.vector("low", DType::kBF16, elements, Fill::kPoison, Role::kOutput);
        args.gradient = w.sink("sink", kind, elements, 512, Role::kInput);
        args.gradient_multiplier = multiplier;
        args.lr = 1e-2f;
        args.decay = 0.1f;
        args.correction1 = 0.19f;
        args.correction2 = 0.0975f;
        w.set_tolerance({INFINITY, 0.0});  // hashes: compared in state_digests and in the bit tests
        args.digests = w.digests((elements + kDigestChunk - 1) / kDigestChunk);
        return [=, &w] { w.ops().adamw(w.stream(), args); };
      }};
}

}  // namespace

std::vector<OpCase> gradient_cases() {
  std::vector<OpCase> cases;
  for (const int64_t elements : {1, 63, 257, 8192, 8193, 40000, 70001}) {
    for (const GradKind kind : kKinds) {
      for (const int64_t block : {int64_t{64}, int64_t{512}, elements}) {
        cases.push_back({name_of("accumulate", text(kind), elements, block), [=](Workbench& w) {
                           const Tensor g =
                               w.vector("g", DType::kF32, elements, Fill::kNormal, Role::kInput);
                           const GradSink sink = w.sink("sink", kind, elements, block);
                           return [=, &w] { w.ops().accumulate_gradient(w.stream(), g, sink); };
                         }});
      }
      cases.push_back({name_of("squared_norm", text(kind), elements), [=](Workbench& w) {
                         const GradSink sink = w.sink("sink", kind, elements, 64, Role::kInput);
                         w.set_tolerance({1e-12, 1e-12});
                         const Tensor out =
                             w.vector("out", DType::kF64, 1, Fill::kPoison, Role::kOutput);
                         return [=, &w] { w.ops().gradient_squared_norm(w.stream(), sink, out); };
                       }});
      cases.push_back(adamw_case(kind, elements % 2 == 1, elements == 257 ? 1.0 : 0.3, elements));
    }
    cases.push_back(
        {name_of("state_digests", elements), [=](Workbench& w) {
           const Tensor p = w.vector("p", DType::kF32, elements, Fill::kNormal, Role::kInput);
           const Tensor m = w.vector("m", DType::kF32, elements, Fill::kNormal, Role::kInput);
           const Tensor v = w.vector("v", DType::kF32, elements, Fill::kNormal, Role::kInput);
           const auto digests = w.digests((elements + kDigestChunk - 1) / kDigestChunk);
           return [=, &w] { w.ops().state_digests(w.stream(), p, m, v, digests); };
         }});
  }
  return cases;
}

std::vector<OpCase> all_cases() {
  std::vector<OpCase> all;
  for (const auto& make : {data_cases, norm_cases, attention_cases, activation_cases, matmul_cases,
                           loss_cases, gradient_cases}) {
    for (OpCase& op_case : make()) all.push_back(std::move(op_case));
  }
  return all;
}

}  // namespace perdure::kernels::testing
