#pragma once
// One matrix product on the calling thread by oneDNN. Primitives and their memory objects are made
// once per shape and kept; what runs later only exchanges pointers.
//
// oneDNN's own threads are never used: in this library a product of several threads is cut into
// panels by shape (matmul.cc) and each panel is one call here, so its bits cannot depend on who
// computes the others.

#include <dnnl.h>

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/ops.h"

namespace perdure::kernels::cpu {

// Everything that a primitive depends on: c[m, n] (f32, dense) = op(a) op(b). Strides are of rows
// as stored.
struct ProductKey {
  int64_t m = 0, n = 0, k = 0;
  int64_t a_stride = 0, b_stride = 0;
  DType in = DType::kF32;
  Transpose transpose_a = Transpose::kNo;
  Transpose transpose_b = Transpose::kNo;

  friend bool operator==(const ProductKey&, const ProductKey&) = default;
};

struct ProductKeyHash {
  size_t operator()(const ProductKey& key) const;
};

struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  float* c = nullptr;
  void* scratch = nullptr;
};

// A primitive with one set of memory objects per thread. Different threads may execute it at once.
class Product {
 public:
  Product(const ProductKey& key, int threads, dnnl_engine_t engine);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  size_t scratch_bytes() const { return scratch_bytes_; }
  void execute(const ProductOperands& operands, int thread, dnnl_stream_t stream);

 private:
  using Arguments = std::array<dnnl_exec_arg_t, 4>;  // a, b, c, scratch
  dnnl_memory_t make_memory(const dnnl_memory_desc_t& desc, dnnl_engine_t engine);

  dnnl_primitive_t primitive_ = nullptr;
  size_t scratch_bytes_ = 0;
  std::vector<dnnl_memory_t> memories_;
  std::vector<Arguments> arguments_;  // per thread
};

// Owns the engine, one stream per thread, and the products made so far. find() is for the engine
// thread only.
class ProductCache {
 public:
  explicit ProductCache(int threads);
  ~ProductCache();
  ProductCache(const ProductCache&) = delete;
  ProductCache& operator=(const ProductCache&) = delete;

  // Valid until the next find() that makes a new one beyond kProductsMax.
  Product& find(const ProductKey& key);
  dnnl_stream_t stream(int thread) const { return streams_[static_cast<size_t>(thread)]; }
  static std::string version();  // "oneDNN 2.6.3"

 private:
  static constexpr size_t kProductsMax = 4096;

  int threads_;
  dnnl_engine_t engine_ = nullptr;
  std::vector<dnnl_stream_t> streams_;
  std::unordered_map<ProductKey, std::unique_ptr<Product>, ProductKeyHash> products_;
};

// oneDNN uses OpenMP's setting of the calling thread. While one lives, that is one thread.
class SerialOpenMP {
 public:
  SerialOpenMP();
  ~SerialOpenMP();
  SerialOpenMP(const SerialOpenMP&) = delete;
  SerialOpenMP& operator=(const SerialOpenMP&) = delete;
  static void set_for_this_thread();

 private:
  int before_;
};

}  // namespace perdure::kernels::cpu
