// Ways to compute a matrix product on a few threads, at the shapes of a GPT: time and equality of
// bits.
//   bench_gemm [threads] [f32|bf16] [wall|cpu] [rows ...]
//
//   ours      panels cut by shape, each one single-threaded oneDNN call (what kernels/cpu does)
//   dnnl-omp  one oneDNN call, its OpenMP threads
//   blas-pan  the same panels by OpenBLAS, single-threaded (f32, when the library is there)
//   blas-omp  one OpenBLAS call, its own threads
//
// Bits: "=" when 1 and N threads agree; then whether padded rows change the result ("stride").

#include <dlfcn.h>
#include <dnnl.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/kernels/bench_support.h"
#include "bench/kernels/machine_limits.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

extern "C" void omp_set_num_threads(int threads);

namespace perdure::bench {
namespace {

using namespace kernels;  // NOLINT: a benchmark of that folder

// c = op(a) op(b), as one of the three products of a linear layer.
struct Problem {
  const char* name;
  int64_t m, n, k;
  Transpose transpose_a, transpose_b;
  Tensor a, b;
};

void check(dnnl_status_t status) {
  CHECK_EQ(static_cast<int>(status), static_cast<int>(dnnl_success));
}

class OneDnnProduct {
 public:
  OneDnnProduct(const Problem& p, const Tensor& c) {
    check(dnnl_engine_create(&engine_, dnnl_cpu, 0));
    check(dnnl_stream_create(&stream_, engine_, dnnl_stream_default_flags));
    const auto describe = [](const Tensor& x, int64_t rows, int64_t cols, Transpose t) {
      const dnnl_dims_t dims = {rows, cols};
      const bool flips = t == Transpose::kYes;
      const dnnl_dims_t strides = {flips ? 1 : x.stride(0), flips ? x.stride(0) : 1};
      dnnl_memory_desc_t desc;
      check(dnnl_memory_desc_init_by_strides(
          &desc, 2, dims, x.dtype() == DType::kBF16 ? dnnl_bf16 : dnnl_f32, strides));
      return desc;
    };
    const auto a = describe(p.a, p.m, p.k, p.transpose_a);
    const auto b = describe(p.b, p.k, p.n, p.transpose_b);
    const auto out = describe(c, p.m, p.n, Transpose::kNo);
    dnnl_matmul_desc_t desc;
    check(dnnl_matmul_desc_init(&desc, &a, &b, nullptr, &out));
    dnnl_primitive_desc_t primitive_desc = nullptr;
    check(dnnl_primitive_desc_create(&primitive_desc, &desc, nullptr, engine_, nullptr));
    check(dnnl_primitive_create(&primitive_, primitive_desc));
    dnnl_primitive_desc_destroy(primitive_desc);
    check(dnnl_memory_create(&arguments_[0].memory, &a, engine_, p.a.data()));
    check(dnnl_memory_create(&arguments_[1].memory, &b, engine_, p.b.data()));
    check(dnnl_memory_create(&arguments_[2].memory, &out, engine_, c.data()));
  }
  ~OneDnnProduct() {
    for (const dnnl_exec_arg_t& argument : arguments_) dnnl_memory_destroy(argument.memory);
    dnnl_primitive_destroy(primitive_);
    dnnl_stream_destroy(stream_);
    dnnl_engine_destroy(engine_);
  }
  void run() { check(dnnl_primitive_execute(primitive_, stream_, 3, arguments_)); }

 private:
  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
  dnnl_primitive_t primitive_ = nullptr;
  dnnl_exec_arg_t arguments_[3] = {
      {DNNL_ARG_SRC, nullptr}, {DNNL_ARG_WEIGHTS, nullptr}, {DNNL_ARG_DST, nullptr}};
};

class OpenBlas {
 public:
  OpenBlas() {
    void* library = ::dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    gemm_ = reinterpret_cast<Gemm>(::dlsym(library, "cblas_sgemm"));
    set_threads_ = reinterpret_cast<SetThreads>(::dlsym(library, "openblas_set_num_threads"));
    const auto core =
        reinterpret_cast<const char* (*)()>(::dlsym(library, "openblas_get_corename"));
    if (core != nullptr) std::printf("OpenBLAS kernels: %s\n", core());
  }
  bool is_present() const { return gemm_ != nullptr && set_threads_ != nullptr; }
  void set_threads(int threads) { set_threads_(threads); }

  // The part of c that begins at (row, col).
  void run(const Problem& p, const Tensor& c, int64_t row, int64_t col, int64_t m, int64_t n) {
    const bool ta = p.transpose_a == Transpose::kYes;
    const bool tb = p.transpose_b == Transpose::kYes;
    const float* a = p.a.as<float>() + (ta ? row : row * p.a.stride(0));
    const float* b = p.b.as<float>() + (tb ? col * p.b.stride(0) : col);
    gemm_(101, ta ? 112 : 111, tb ? 112 : 111, static_cast<int>(m), static_cast<int>(n),
          static_cast<int>(p.k), 1.0f, a, static_cast<int>(p.a.stride(0)), b,
          static_cast<int>(p.b.stride(0)), 0.0f, c.as<float>() + row * c.stride(0) + col,
          static_cast<int>(c.stride(0)));
  }

 private:
  using Gemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                        float, float*, int);
  using SetThreads = void (*)(int);
  Gemm gemm_ = nullptr;
  SetThreads set_threads_ = nullptr;
};

class GemmBenchmark {
 public:
  GemmBenchmark(int threads, DType dtype, Clock clock)
      : threads_(threads),
        dtype_(dtype),
        all_{clock, threads},
        single_{clock, 1},
        one_(std::move(cpu::make_cpu_device({.threads = 1})).value()),
        many_(std::move(cpu::make_cpu_device({.threads = threads})).value()),
        stream_(std::move(many_->make_stream()).value()),
        pool_(threads, [] { omp_set_num_threads(1); }) {
    std::printf("%s\n", many_->description().c_str());
    std::printf(
        "%-3s %6s %6s %6s | %6s %6s | %8s %8s | %8s %8s | bits: ours dnnl blas | stride dnnl\n", "",
        "M", "N", "K", "peak", "ours", "ours-1", "dnnl-omp", "blas-pan", "blas-omp");
  }

  void run(int64_t rows, int64_t in, int64_t out) {
    Operands data;
    const Tensor x = data.matrix(dtype_, rows, in);
    const Tensor w = data.matrix(dtype_, out, in);
    const Tensor dy = data.matrix(dtype_, rows, out);
    run_problem({"y", rows, out, in, Transpose::kNo, Transpose::kYes, x, w});
    run_problem({"dx", rows, in, out, Transpose::kNo, Transpose::kNo, dy, w});
    run_problem({"dW", out, in, rows, Transpose::kYes, Transpose::kNo, dy, x});
  }

 private:
  template <typename Fn>
  double rate(const Problem& p, const ClockOptions& clock, Fn&& f) {
    const double flops =
        2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    return flops / measure(f, clock).seconds(clock) * 1e-9;
  }
  static bool equal(const Tensor& a, const Tensor& b) {
    return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.elements()) * 4) == 0;
  }
  static const char* mark(bool is_equal) { return is_equal ? "=" : "DIFF"; }

  void run_problem(const Problem& p) {
    Operands data;
    const Tensor c = data.matrix(DType::kF32, p.m, p.n);
    const Tensor c1 = data.matrix(DType::kF32, p.m, p.n);
    const auto args = [&](const Tensor& to) {
      return MatmulArgs{
          .a = p.a, .b = p.b, .c = to, .transpose_a = p.transpose_a, .transpose_b = p.transpose_b};
    };
    const double peak = measure_fma_peak_gflops(threads_, all_);
    const double ours = rate(p, all_, [&] { many_->ops().matmul(*stream_, args(c)); });
    const double ours_one = rate(p, single_, [&] { one_->ops().matmul(*stream_, args(c1)); });
    const bool ours_equal = equal(c, c1);

    OneDnnProduct whole(p, c);
    omp_set_num_threads(threads_);
    const double dnnl = rate(p, all_, [&] { whole.run(); });
    omp_set_num_threads(1);
    OneDnnProduct whole_one(p, c1);
    whole_one.run();
    const bool dnnl_equal = equal(c, c1);
    const bool stride_equal = run_strided(p, c1);

    double blas_panels = 0.0;
    double blas = 0.0;
    bool blas_equal = true;
    if (dtype_ == DType::kF32 && blas_.is_present()) {
      blas_.set_threads(1);
      blas_panels = rate(p, all_, [&] { run_blas_panels(p, c); });
      blas_.run(p, c1, 0, 0, p.m, p.n);
      blas_.set_threads(threads_);
      omp_set_num_threads(threads_);
      blas = rate(p, all_, [&] { blas_.run(p, c, 0, 0, p.m, p.n); });
      omp_set_num_threads(1);
      blas_equal = equal(c, c1);
    }
    std::printf(
        "%-3s %6lld %6lld %6lld | %6.0f %6.0f | %8.0f %8.0f | %8.0f %8.0f | %10s %4s %4s | %s\n",
        p.name, static_cast<long long>(p.m), static_cast<long long>(p.n),
        static_cast<long long>(p.k), peak, ours, ours_one, dnnl, blas_panels, blas,
        mark(ours_equal), mark(dnnl_equal), mark(blas_equal), mark(stride_equal));
    std::fflush(stdout);
  }

  // The same operands in rows that are 16 elements longer.
  bool run_strided(const Problem& p, const Tensor& expected) {
    Operands data;
    const auto widen = [&](const Tensor& x) {
      const Tensor wide =
          data.matrix(x.dtype(), x.shape(0), x.shape(1) + 16).columns(0, x.shape(1));
      one_->ops().copy(*stream_, x, wide);
      return wide;
    };
    Problem strided = p;
    strided.a = widen(p.a);
    strided.b = widen(p.b);
    const Tensor c = data.matrix(DType::kF32, p.m, p.n);
    OneDnnProduct product(strided, c);
    product.run();
    return equal(c, expected);
  }

  void run_blas_panels(const Problem& p, const Tensor& c) {
    constexpr int64_t kRows = 128;
    constexpr int64_t kCols = 384;
    const int64_t along_m = (p.m + kRows - 1) / kRows;
    const int64_t along_n = (p.n + kCols - 1) / kCols;
    pool_.run(along_m * along_n, [&](int64_t index, int) {
      const int64_t row = index % along_m * kRows;
      const int64_t col = index / along_m * kCols;
      blas_.run(p, c, row, col, std::min(kRows, p.m - row), std::min(kCols, p.n - col));
    });
  }

  int threads_;
  DType dtype_;
  ClockOptions all_;
  ClockOptions single_;
  std::unique_ptr<Device> one_;
  std::unique_ptr<Device> many_;
  std::unique_ptr<Stream> stream_;
  cpu::ThreadPool pool_;
  OpenBlas blas_;
};

int run(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const DType dtype = argc > 2 && std::strcmp(argv[2], "bf16") == 0 ? DType::kBF16 : DType::kF32;
  omp_set_num_threads(1);
  const Clock clock = argc > 3 && std::strcmp(argv[3], "cpu") == 0 ? Clock::kCpu : Clock::kWall;
  GemmBenchmark benchmark(threads, dtype, clock);
  std::vector<int64_t> rows;
  for (int i = 4; i < argc; ++i) rows.push_back(std::atoll(argv[i]));
  if (rows.empty()) rows = {256, 2048};
  for (const int64_t r : rows) {
    benchmark.run(r, 768, 768);
    benchmark.run(r, 768, 2304);
    benchmark.run(r, 768, 3072);
    benchmark.run(r, 3072, 768);
    benchmark.run(r, 768, 4096);  // a chunk of the vocabulary
  }
  benchmark.run(2048, 256, 256);
  benchmark.run(2048, 256, 768);
  benchmark.run(2048, 256, 1024);
  benchmark.run(2048, 1024, 256);
  return 0;
}

}  // namespace
}  // namespace perdure::bench

int main(int argc, char** argv) { return perdure::bench::run(argc, argv); }
