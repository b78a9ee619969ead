// Time of each op at the sizes of a small GPT, beside the limits of the machine measured in the
// same run.
//   bench_ops [threads] [f32|bf16] [rows] [width] [heads] [time] [vocabulary] [wall|cpu]

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/kernels/bench_support.h"
#include "bench/kernels/machine_limits.h"
#include "kernels/linear_cross_entropy.h"
#include "kernels/select/make_device.h"

namespace perdure::bench {
namespace {

using namespace kernels;  // NOLINT: a benchmark of that folder

struct Sizes {
  int threads = 2;
  DType dtype = DType::kF32;
  ClockOptions clock;
  int64_t rows = 256, width = 768, heads = 12, time = 64, vocabulary = 50257;
};

class OpsBenchmark {
 public:
  OpsBenchmark(Device& device, const Sizes& sizes)
      : ops_(device.ops()), stream_(std::move(device.make_stream()).value()), n_(sizes) {
    peak_ = measure_fma_peak_gflops(n_.threads, n_.clock);
    memory_ = measure_memory_gbytes(n_.threads, n_.clock);
    std::printf("limits: %.0f GFLOP/s f32, %.1f GB/s\n\n", peak_, memory_);
    std::printf("%-34s %10s %10s %9s %7s\n", "op", "best us", "median us", "rate", "limit");
  }

  void run() {
    run_matmul();
    run_norms();
    run_elementwise();
    run_attention();
    run_embedding();
    run_loss();
    run_gradients();
  }

 private:
  template <typename Fn>
  void compute(const std::string& name, double flops, Fn&& f) {
    const Timing t = measure(f, n_.clock);
    const double rate = flops / t.seconds(n_.clock) * 1e-9;
    std::printf("%-34s %10.1f %10.1f %6.0f GF %6.0f%%\n", name.c_str(), t.best_seconds * 1e6,
                t.median_seconds * 1e6, rate, 100.0 * rate / peak_);
  }
  template <typename Fn>
  void move(const std::string& name, double bytes, Fn&& f) {
    const Timing t = measure(f, n_.clock);
    const double rate = bytes / t.seconds(n_.clock) * 1e-9;
    std::printf("%-34s %10.1f %10.1f %6.1f GB %6.0f%%\n", name.c_str(), t.best_seconds * 1e6,
                t.median_seconds * 1e6, rate, 100.0 * rate / memory_);
  }

  double element_bytes() const { return static_cast<double>(size_bytes(n_.dtype)); }

  GradSink make_sink(GradKind kind, int64_t elements) {
    GradSink sink;
    sink.kind = kind;
    sink.elements = elements;
    sink.block_elements = 512;
    const Tensor store =
        data_.vector(kind == GradKind::kFixed64 ? DType::kF64 : DType::kF32, elements);
    std::memset(store.data(), 0, static_cast<size_t>(elements) * size_bytes(store.dtype()));
    sink.accumulator = store.data();
    const Tensor exponents = data_.vector(DType::kBF16, sink.blocks());
    for (int64_t b = 0; b < sink.blocks(); ++b) static_cast<int16_t*>(exponents.data())[b] = 8;
    sink.exponents = static_cast<int16_t*>(exponents.data());
    sink.abs_max = data_.vector(DType::kF32, sink.blocks()).as<float>();
    sink.limit = 1 << 28;
    sink.flags = &flags_;
    return sink;
  }

  void run_matmul() {
    struct Layer {
      const char* name;
      int64_t in, out;
    };
    const Layer layers[] = {{"attention out", n_.width, n_.width},
                            {"qkv", n_.width, 3 * n_.width},
                            {"mlp up", n_.width, 4 * n_.width},
                            {"mlp down", 4 * n_.width, n_.width}};
    for (const Layer& layer : layers) {
      const Tensor x = data_.matrix(n_.dtype, n_.rows, layer.in);
      const Tensor w = data_.matrix(n_.dtype, layer.out, layer.in);
      const Tensor y = data_.matrix(n_.dtype, n_.rows, layer.out);
      const Tensor bias = data_.vector(DType::kF32, layer.out);
      const double flops = 2.0 * static_cast<double>(n_.rows * layer.in * layer.out);
      const std::string name = std::string("matmul ") + layer.name;
      compute(name + " y", flops, [&] {
        ops_.matmul(*stream_,
                    {.a = x, .b = w, .c = y, .bias = bias, .transpose_b = Transpose::kYes});
      });
      compute(name + " dx", flops, [&] { ops_.matmul(*stream_, {.a = y, .b = w, .c = x}); });
      for (const auto& [kind, kind_name] :
           {std::pair{GradKind::kFloat, "float"}, std::pair{GradKind::kFixed32, "fixed32"}}) {
        const GradSink sink = make_sink(kind, layer.in * layer.out);
        compute(name + " dW " + kind_name, flops,
                [&] { ops_.weight_gradient(*stream_, y, x, sink); });
      }
    }
  }

  void run_norms() {
    NormGradArgs args;
    args.forward.x = data_.matrix(DType::kF32, n_.rows, n_.width);
    args.forward.gamma = data_.vector(DType::kF32, n_.width);
    args.forward.beta = data_.vector(DType::kF32, n_.width);
    args.forward.y = data_.matrix(n_.dtype, n_.rows, n_.width);
    args.forward.mean = data_.vector(DType::kF32, n_.rows);
    args.forward.rstd = data_.vector(DType::kF32, n_.rows);
    args.dy = data_.matrix(n_.dtype, n_.rows, n_.width);
    args.dx = data_.matrix(DType::kF32, n_.rows, n_.width);
    args.dgamma = data_.vector(DType::kF32, n_.width);
    args.dbeta = data_.vector(DType::kF32, n_.width);
    const auto elements = static_cast<double>(n_.rows * n_.width);
    move("layer_norm_forward", elements * (4 + element_bytes()),
         [&] { ops_.layer_norm_forward(*stream_, args.forward); });
    move("layer_norm_backward", elements * (12 + element_bytes()),
         [&] { ops_.layer_norm_backward(*stream_, args); });
  }

  void run_elementwise() {
    const int64_t cols = 4 * n_.width;
    const Tensor x = data_.matrix(n_.dtype, n_.rows, cols);
    const Tensor y = data_.matrix(n_.dtype, n_.rows, cols);
    const Tensor residual = data_.matrix(DType::kF32, n_.rows, cols);
    const Tensor sum = data_.vector(DType::kF32, cols);
    const Tensor half = x.columns(0, cols / 2);
    const auto elements = static_cast<double>(n_.rows * cols);
    move("gelu_forward", 2 * elements * element_bytes(),
         [&] { ops_.gelu_forward(*stream_, x, y); });
    move("gelu_backward", 3 * elements * element_bytes(),
         [&] { ops_.gelu_backward(*stream_, x, y, y); });
    move("swiglu_forward", 1.5 * elements * element_bytes(),
         [&] { ops_.swiglu_forward(*stream_, y, half); });
    move("add", elements * (8 + element_bytes()), [&] { ops_.add(*stream_, x, residual); });
    move("column_sum", elements * element_bytes(), [&] { ops_.column_sum(*stream_, x, sum); });
  }

  void run_attention() {
    const int64_t batch = n_.rows / n_.time;
    const int64_t size = n_.width / n_.heads;
    const auto heads = [&] {
      return data_.matrix(n_.dtype, n_.rows, n_.width).as_heads(batch, n_.time, n_.heads, size);
    };
    AttentionGradArgs args;
    args.forward = {heads(),
                    heads(),
                    heads(),
                    heads(),
                    Tensor::dense(data_.vector(DType::kF32, batch * n_.heads * n_.time).data(),
                                  DType::kF32, {batch, n_.heads, n_.time}),
                    1.0f / std::sqrt(static_cast<float>(size))};
    args.dout = heads();
    args.dq = heads();
    args.dk = heads();
    args.dv = heads();
    // Half of the T x T products count: attention is causal.
    const double pairs =
        static_cast<double>(batch * n_.heads) * static_cast<double>(n_.time * (n_.time + 1)) / 2;
    const double product = 2.0 * pairs * static_cast<double>(size);
    compute("attention_forward", 2 * product,
            [&] { ops_.attention_forward(*stream_, args.forward); });
    compute("attention_backward", 5 * product, [&] { ops_.attention_backward(*stream_, args); });
    const Tensor table = data_.matrix(DType::kF32, n_.time, size);
    ops_.rope_table(*stream_, 10000.0f, table);
    const Tensor q = heads();
    move("rope", 2.0 * static_cast<double>(n_.rows * n_.width) * element_bytes(),
         [&] { ops_.rope(*stream_, q, table, RopeDirection::kForward); });
  }

  void run_embedding() {
    const Tensor tokens = data_.tokens(n_.rows, n_.vocabulary);
    const Tensor table = data_.matrix(n_.dtype, n_.vocabulary, n_.width);
    const Tensor y = data_.matrix(DType::kF32, n_.rows, n_.width);
    const auto elements = static_cast<double>(n_.rows * n_.width);
    move("embedding_forward", elements * (4 + element_bytes()),
         [&] { ops_.embedding_forward(*stream_, tokens, table, Tensor(), n_.time, y); });
    const GradSink sink = make_sink(GradKind::kFixed32, n_.vocabulary * n_.width);
    move("embedding_backward fixed32", elements * 12,
         [&] { ops_.embedding_backward(*stream_, tokens, y, sink); });
  }

  void run_loss() {
    LinearCrossEntropyArgs args;
    args.hidden = data_.matrix(n_.dtype, n_.rows, n_.width);
    args.weight = data_.matrix(n_.dtype, n_.vocabulary, n_.width);
    args.targets = data_.tokens(n_.rows, n_.vocabulary);
    args.loss = data_.vector(DType::kF64, 1);
    args.dhidden = data_.matrix(n_.dtype, n_.rows, n_.width);
    args.weight_gradient = make_sink(GradKind::kFixed32, n_.vocabulary * n_.width);
    const size_t bytes = linear_cross_entropy_workspace_bytes(
        {n_.rows, n_.width, n_.vocabulary, n_.dtype, args.keep});
    const Tensor workspace = data_.vector(DType::kF32, static_cast<int64_t>(bytes / 4 + 1));
    args.workspace = {static_cast<std::byte*>(workspace.data()), bytes};
    const double product =
        2.0 * static_cast<double>(n_.rows * n_.width) * static_cast<double>(n_.vocabulary);
    compute("linear_cross_entropy fixed32", 3 * product,
            [&] { linear_cross_entropy(ops_, *stream_, args); });
    const Tensor logits =
        data_.matrix(DType::kF32, n_.rows, std::min(n_.vocabulary, kVocabularyChunk));
    const SoftmaxState state{data_.vector(DType::kF32, n_.rows), data_.vector(DType::kF32, n_.rows),
                             data_.vector(DType::kF32, n_.rows)};
    const double bytes_read = 4.0 * static_cast<double>(logits.elements());
    move("softmax_update", bytes_read,
         [&] { ops_.softmax_update(*stream_, logits, args.targets, 0, state); });
    const Tensor dlogits = data_.matrix(n_.dtype, n_.rows, logits.shape(1));
    move("softmax_backward", bytes_read * (1 + element_bytes() / 4),
         [&] { ops_.softmax_backward(*stream_, logits, args.targets, 0, state, 1.0f, dlogits); });
  }

  void run_gradients() {
    const int64_t elements = 12 * n_.width * n_.width;
    const auto size = static_cast<double>(elements);
    const Tensor g = data_.vector(DType::kF32, elements);
    AdamwArgs args;
    args.param = data_.vector(DType::kF32, elements);
    args.m = data_.vector(DType::kF32, elements);
    args.v = data_.vector(DType::kF32, elements);
    std::memset(args.v.data(), 0, static_cast<size_t>(elements) * 4);
    args.lr = 1e-4f;
    args.gradient_multiplier = 0.5;
    std::vector<uint64_t> digests(
        static_cast<size_t>((elements + kDigestChunk - 1) / kDigestChunk));
    const Tensor norm = data_.vector(DType::kF64, 1);
    for (const auto& [kind, name] : {std::pair{GradKind::kFloat, std::string("float")},
                                     std::pair{GradKind::kFixed32, std::string("fixed32")},
                                     std::pair{GradKind::kFixed64, std::string("fixed64")}}) {
      const double width = kind == GradKind::kFixed64 ? 8.0 : 4.0;
      const GradSink sink = make_sink(kind, elements);
      move("accumulate_gradient " + name, size * (4 + 2 * width),
           [&] { ops_.accumulate_gradient(*stream_, g, sink); });
      move("gradient_squared_norm " + name, size * width,
           [&] { ops_.gradient_squared_norm(*stream_, sink, norm); });
      args.gradient = sink;
      args.digests = {};
      move("adamw " + name, size * (24 + width), [&] { ops_.adamw(*stream_, args); });
      args.digests = digests;
      move("adamw with digests " + name, size * (24 + width), [&] { ops_.adamw(*stream_, args); });
    }
    move("state_digests", size * 12,
         [&] { ops_.state_digests(*stream_, args.param, args.m, args.v, digests); });
  }

  Ops& ops_;
  std::unique_ptr<Stream> stream_;
  Sizes n_;
  Operands data_;
  std::atomic<uint32_t> flags_{0};
  double peak_ = 0.0;
  double memory_ = 0.0;
};

int64_t argument(int argc, char** argv, int index, int64_t fallback) {
  return argc > index ? std::strtoll(argv[index], nullptr, 10) : fallback;
}

int run(int argc, char** argv) {
  Sizes sizes;
  sizes.threads = static_cast<int>(argument(argc, argv, 1, sizes.threads));
  if (argc > 2 && std::strcmp(argv[2], "bf16") == 0) sizes.dtype = DType::kBF16;
  sizes.rows = argument(argc, argv, 3, sizes.rows);
  sizes.width = argument(argc, argv, 4, sizes.width);
  sizes.heads = argument(argc, argv, 5, sizes.heads);
  sizes.time = argument(argc, argv, 6, sizes.time);
  sizes.vocabulary = argument(argc, argv, 7, sizes.vocabulary);
  const bool cpu_time = argc > 8 && std::strcmp(argv[8], "cpu") == 0;
  sizes.clock = {cpu_time ? Clock::kCpu : Clock::kWall, sizes.threads};
  auto device = select::make_device("cpu", {.threads = sizes.threads});
  CHECK(device.is_ok()) << device.status();
  std::printf("%s\n%s, rows %lld, width %lld, heads %lld, time %lld, vocabulary %lld\n",
              device.value()->description().c_str(), std::string(to_string(sizes.dtype)).c_str(),
              static_cast<long long>(sizes.rows), static_cast<long long>(sizes.width),
              static_cast<long long>(sizes.heads), static_cast<long long>(sizes.time),
              static_cast<long long>(sizes.vocabulary));
  OpsBenchmark(*device.value(), sizes).run();
  return 0;
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) { return perdure::bench::run(argc, argv); }
