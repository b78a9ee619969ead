#include "kernels/cpu/onednn_product.h"

#include <string>

// The functions of libgomp that are needed. <omp.h> would ask for a compiler with OpenMP.
extern "C" {
void omp_set_num_threads(int threads);
int omp_get_max_threads(void);
}

namespace perdure::kernels::cpu {
namespace {

void check_dnnl(dnnl_status_t status, const char* what) {
  CHECK_EQ(static_cast<int>(status), static_cast<int>(dnnl_success)) << what << " failed";
}

dnnl_data_type_t to_dnnl(DType dtype) { return dtype == DType::kBF16 ? dnnl_bf16 : dnnl_f32; }

// A matrix [rows, cols] that may be stored transposed.
dnnl_memory_desc_t matrix_desc(int64_t rows, int64_t cols, DType dtype, int64_t stride,
                               Transpose transpose) {
  const dnnl_dims_t dims = {rows, cols};
  const bool flips = transpose == Transpose::kYes;
  const dnnl_dims_t strides = {flips ? 1 : stride, flips ? stride : 1};
  dnnl_memory_desc_t desc;
  check_dnnl(dnnl_memory_desc_init_by_strides(&desc, 2, dims, to_dnnl(dtype), strides),
             "dnnl_memory_desc_init_by_strides");
  return desc;
}

}  // namespace

size_t ProductKeyHash::operator()(const ProductKey& key) const {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  const auto mix = [&](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  };
  for (const int64_t value : {key.m, key.n, key.k, key.a_stride, key.b_stride}) mix(value);
  mix(static_cast<int64_t>(key.in) * 4 + static_cast<int64_t>(key.transpose_a) * 2 +
      static_cast<int64_t>(key.transpose_b));
  return hash;
}

Product::Product(const ProductKey& key, int threads, dnnl_engine_t engine) {
  const dnnl_memory_desc_t a = matrix_desc(key.m, key.k, key.in, key.a_stride, key.transpose_a);
  const dnnl_memory_desc_t b = matrix_desc(key.k, key.n, key.in, key.b_stride, key.transpose_b);
  const dnnl_memory_desc_t c = matrix_desc(key.m, key.n, DType::kF32, key.n, Transpose::kNo);
  dnnl_matmul_desc_t desc;
  check_dnnl(dnnl_matmul_desc_init(&desc, &a, &b, nullptr, &c), "dnnl_matmul_desc_init");

  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_primitive_desc_t primitive_desc = nullptr;
  check_dnnl(dnnl_primitive_attr_create(&attributes), "dnnl_primitive_attr_create");
  check_dnnl(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
             "dnnl_primitive_attr_set_scratchpad_mode");
  check_dnnl(dnnl_primitive_desc_create(&primitive_desc, &desc, attributes, engine, nullptr),
             "dnnl_primitive_desc_create");
  check_dnnl(dnnl_primitive_create(&primitive_, primitive_desc), "dnnl_primitive_create");
  const dnnl_memory_desc_t scratch =
      *dnnl_primitive_desc_query_md(primitive_desc, dnnl_query_scratchpad_md, 0);
  scratch_bytes_ = dnnl_memory_desc_get_size(&scratch);

  arguments_.resize(static_cast<size_t>(threads));
  for (Arguments& arguments : arguments_) {
    arguments = {{{DNNL_ARG_SRC, make_memory(a, engine)},
                  {DNNL_ARG_WEIGHTS, make_memory(b, engine)},
                  {DNNL_ARG_DST, make_memory(c, engine)},
                  {DNNL_ARG_SCRATCHPAD, make_memory(scratch, engine)}}};
  }
  dnnl_primitive_desc_destroy(primitive_desc);
  dnnl_primitive_attr_destroy(attributes);
}

Product::~Product() {
  for (const dnnl_memory_t memory : memories_) dnnl_memory_destroy(memory);
  dnnl_primitive_destroy(primitive_);
}

dnnl_memory_t Product::make_memory(const dnnl_memory_desc_t& desc, dnnl_engine_t engine) {
  dnnl_memory_t memory = nullptr;
  check_dnnl(dnnl_memory_create(&memory, &desc, engine, DNNL_MEMORY_NONE), "dnnl_memory_create");
  memories_.push_back(memory);
  return memory;
}

void Product::execute(const ProductOperands& operands, int thread, dnnl_stream_t stream) {
  const Arguments& arguments = arguments_[static_cast<size_t>(thread)];
  // oneDNN takes all handles as void*, but writes to the result and the scratchpad only.
  void* const handles[] = {const_cast<void*>(operands.a), const_cast<void*>(operands.b), operands.c,
                           operands.scratch};
  for (size_t i = 0; i < arguments.size(); ++i) {
    check_dnnl(dnnl_memory_set_data_handle_v2(arguments[i].memory, handles[i], stream),
               "dnnl_memory_set_data_handle_v2");
  }
  check_dnnl(dnnl_primitive_execute(primitive_, stream, static_cast<int>(arguments.size()),
                                    arguments.data()),
             "dnnl_primitive_execute");
}

ProductCache::ProductCache(int threads) : threads_(threads) {
  check_dnnl(dnnl_engine_create(&engine_, dnnl_cpu, 0), "dnnl_engine_create");
  streams_.resize(static_cast<size_t>(threads));
  for (dnnl_stream_t& stream : streams_) {
    check_dnnl(dnnl_stream_create(&stream, engine_, dnnl_stream_default_flags),
               "dnnl_stream_create");
  }
}

ProductCache::~ProductCache() {
  products_.clear();
  for (const dnnl_stream_t stream : streams_) dnnl_stream_destroy(stream);
  dnnl_engine_destroy(engine_);
}

Product& ProductCache::find(const ProductKey& key) {
  const auto found = products_.find(key);
  if (found != products_.end()) return *found->second;
  if (products_.size() >= kProductsMax) products_.clear();
  auto product = std::make_unique<Product>(key, threads_, engine_);
  return *products_.emplace(key, std::move(product)).first->second;
}

std::string ProductCache::version() {
  const dnnl_version_t* version = dnnl_version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

SerialOpenMP::SerialOpenMP() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
SerialOpenMP::~SerialOpenMP() { omp_set_num_threads(before_); }
void SerialOpenMP::set_for_this_thread() { omp_set_num_threads(1); }

}  // namespace perdure::kernels::cpu
