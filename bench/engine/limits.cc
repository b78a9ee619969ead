#include "bench/engine/limits.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "bench/engine/bench_job.h"
#include "kernels/ops.h"

namespace perdure::bench {
namespace {

using kernels::DType;
using kernels::Tensor;

struct ProductShape {
  int64_t m, n, k;
};
constexpr ProductShape kShapes[] = {
    {1024, 1024, 1024}, {1024, 3072, 768}, {256, 3072, 768}, {1024, 768, 768}};

template <typename Body>
double best_seconds(int repeats, Body body) {
  body();
  double best = 1e9;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now_seconds();
    body();
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

double device_product_gflops(kernels::Device& device, const ProductShape& shape, DType dtype) {
  auto stream = device.make_stream().value();
  const size_t element = kernels::size_bytes(dtype);
  auto a = device.allocate(static_cast<size_t>(shape.m * shape.k) * element).value();
  auto b = device.allocate(static_cast<size_t>(shape.n * shape.k) * element).value();
  auto c = device.allocate(static_cast<size_t>(shape.m * shape.n) * 4).value();
  const kernels::MatmulArgs args{.a = Tensor::matrix(a->data(), dtype, shape.m, shape.k),
                                 .b = Tensor::matrix(b->data(), dtype, shape.n, shape.k),
                                 .c = Tensor::matrix(c->data(), DType::kF32, shape.m, shape.n),
                                 .transpose_b = kernels::Transpose::kYes};
  const double seconds = best_seconds(15, [&] { device.ops().matmul(*stream, args); });
  return 2.0 * static_cast<double>(shape.m * shape.n * shape.k) / seconds / 1e9;
}

struct SgemmBuffers {
  explicit SgemmBuffers(const ProductShape& s)
      : a(static_cast<size_t>(s.m * s.k), 0.5f),
        b(static_cast<size_t>(s.n * s.k), 0.25f),
        c(static_cast<size_t>(s.m * s.n)) {}
  std::vector<float> a, b, c;
};

double onednn_sgemm_gflops(const ProductShape& s, int threads) {
  omp_set_num_threads(threads);
  SgemmBuffers x(s);
  const double seconds = best_seconds(15, [&] {
    dnnl_sgemm('N', 'T', s.m, s.n, s.k, 1.0f, x.a.data(), s.k, x.b.data(), s.k, 0.0f, x.c.data(),
               s.n);
  });
  omp_set_num_threads(1);
  return 2.0 * static_cast<double>(s.m * s.n * s.k) / seconds / 1e9;
}

// cblas_sgemm of the OpenBLAS that is installed, if any. Loaded at run time: only this comparison
// uses it.
double openblas_sgemm_gflops(const ProductShape& s, int threads) {
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                         float, float*, int);
  static void* const library = [] {
    ::unsetenv("OPENBLAS_CORETYPE");  // may name an old core and halve the speed
    return ::dlopen("/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas.so.0",
                    RTLD_NOW | RTLD_LOCAL);
  }();
  if (library == nullptr) return 0.0;
  const auto sgemm = reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
  const auto set_threads =
      reinterpret_cast<void (*)(int)>(::dlsym(library, "openblas_set_num_threads"));
  if (sgemm == nullptr || set_threads == nullptr) return 0.0;
  set_threads(threads);
  SgemmBuffers x(s);
  constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
  const double seconds = best_seconds(15, [&] {
    sgemm(kRowMajor, kNoTrans, kTrans, static_cast<int>(s.m), static_cast<int>(s.n),
          static_cast<int>(s.k), 1.0f, x.a.data(), static_cast<int>(s.k), x.b.data(),
          static_cast<int>(s.k), 0.0f, x.c.data(), static_cast<int>(s.n));
  });
  return 2.0 * static_cast<double>(s.m * s.n * s.k) / seconds / 1e9;
}

}  // namespace

double best_sgemm_gflops(kernels::Device& device, int threads) {
  double best = 0.0;
  for (const ProductShape& shape : kShapes) {
    best =
        std::max({best, onednn_sgemm_gflops(shape, threads), openblas_sgemm_gflops(shape, threads),
                  device_product_gflops(device, shape, DType::kF32)});
  }
  return best;
}

Limits measure_limits(kernels::Device& device, int threads) {
  Limits limits;
  limits.f32_gflops = best_sgemm_gflops(device, threads);
  for (const ProductShape& shape : kShapes) {
    limits.bf16_gflops =
        std::max(limits.bf16_gflops, device_product_gflops(device, shape, DType::kBF16));
  }
  auto stream = device.make_stream().value();
  constexpr int64_t kElements = int64_t{64} << 20;
  auto x = device.allocate(static_cast<size_t>(kElements) * 4).value();
  auto y = device.allocate(static_cast<size_t>(kElements) * 4).value();
  const Tensor from = Tensor::matrix(x->data(), DType::kF32, 1024, kElements / 1024);
  const Tensor to = Tensor::matrix(y->data(), DType::kF32, 1024, kElements / 1024);
  const double seconds = best_seconds(7, [&] { device.ops().add(*stream, from, to); });
  limits.gbytes_per_s = 3.0 * 4.0 * static_cast<double>(kElements) / seconds / 1e9;
  return limits;
}

}  // namespace perdure::bench
