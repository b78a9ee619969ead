// Matrix products, cut into panels of the result. A panel is one single-threaded product (never
// split along K), so its bits depend on shapes only. docs/decisions/0001-matrix-products.md has the
// measurements.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {
namespace {

// Part of the numerics: oneDNN picks its blocking, and with it the rounding, by the shape of a
// panel.
constexpr int64_t kPanelRows = 128;
constexpr int64_t kPanelCols = 384;
constexpr int64_t kPanelsWanted = 8;
constexpr int64_t kPanelWorkMin = int64_t{4} << 20;        // multiply-adds: about 50 us
constexpr int64_t kOperandElementsMax = int64_t{2} << 20;  // of a and b of one panel, as f32
constexpr int64_t kPanelUnit = 16;

struct Panels {
  int64_t rows, cols;        // of one panel
  int64_t along_m, along_n;  // how many
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Equal parts of at most `most`, in whole units.
int64_t equal_parts(int64_t extent, int64_t most) {
  const int64_t part = ceil_div(extent, ceil_div(extent, most));
  return std::min(extent, ceil_div(part, kPanelUnit) * kPanelUnit);
}

Panels plan_panels(const MatmulShape& shape) {
  int64_t rows = equal_parts(shape.m, kPanelRows);
  int64_t cols = equal_parts(shape.n, kPanelCols);
  for (;;) {
    const bool few = ceil_div(shape.m, rows) * ceil_div(shape.n, cols) < kPanelsWanted &&
                     rows * cols * shape.k >= 2 * kPanelWorkMin;
    const bool large = (rows + cols) * shape.k > kOperandElementsMax;
    int64_t& longer = cols >= 2 * rows ? cols : rows;
    if ((!few && !large) || longer < 2 * kPanelUnit) break;
    longer = equal_parts(longer, longer / 2);
  }
  return {rows, cols, ceil_div(shape.m, rows), ceil_div(shape.n, cols)};
}

// One panel of the result: rows [row, row + rows) and columns [col, col + cols).
struct Panel {
  int64_t row, col, rows, cols;
};

// Panels side by side share operand b, so consecutive ones go down the rows.
Panel panel_at(const Panels& panels, const MatmulShape& shape, int64_t index) {
  const int64_t row = index % panels.along_m * panels.rows;
  const int64_t col = index / panels.along_m * panels.cols;
  return {row, col, std::min(panels.rows, shape.m - row), std::min(panels.cols, shape.n - col)};
}

// The part of op(x) that a panel reads: `extent` rows or columns of it, all of K, as stored.
Tensor operand_part(const Tensor& x, Transpose transpose, int64_t begin, int64_t extent,
                    int64_t k) {
  return transpose == Transpose::kYes
             ? Tensor::matrix(element(x, begin), x.dtype(), k, extent, x.stride(0))
             : Tensor::matrix(element(x, begin * x.stride(0)), x.dtype(), extent, k, x.stride(0));
}

}  // namespace

// What the panels of one call have in common. Up to four shapes of panels occur: inner and last
// ones.
struct CpuOps::PanelRun {
  MatmulShape shape;
  Panels panels;
  Product* products[4] = {};  // + 1: last along M, + 2: last along N
  int64_t scratch_bytes = 0;  // of one thread
  bool through_f32 = false;   // operands are converted first
  float* a = nullptr;         // converted operands, per thread
  float* b = nullptr;
  std::byte* scratch = nullptr;
  int64_t a_elements = 0;
  int64_t b_elements = 0;

  int kind_of(const Panel& panel) const {
    return (panel.rows < panels.rows ? 1 : 0) + (panel.cols < panels.cols ? 2 : 0);
  }
};

// `key` says how c is written (c_stride 0: dense panels); its sizes and the strides of converted
// operands are filled in here.
CpuOps::PanelRun CpuOps::prepare_panels(const MatmulArgs& args, const MatmulShape& shape,
                                        ProductKey key) {
  PanelRun run;
  run.shape = shape;
  run.panels = plan_panels(shape);
  run.through_f32 = args.a.dtype() == DType::kBF16 && bf16_product_ == BF16Product::kThroughF32;
  key.in = run.through_f32 ? DType::kF32 : args.a.dtype();
  key.transpose_a = args.transpose_a;
  key.transpose_b = args.transpose_b;
  key.k = shape.k;
  const int64_t c_stride = key.c_stride;
  for (int64_t index = 0; index < run.panels.along_m * run.panels.along_n; ++index) {
    const Panel panel = panel_at(run.panels, shape, index);
    Product*& product = run.products[run.kind_of(panel)];
    if (product != nullptr) continue;
    key.m = panel.rows;
    key.n = panel.cols;
    key.a_stride = args.a.stride(0);
    key.b_stride = args.b.stride(0);
    key.c_stride = c_stride == 0 ? panel.cols : c_stride;
    if (run.through_f32) {
      key.a_stride = args.transpose_a == Transpose::kYes ? panel.rows : shape.k;
      key.b_stride = args.transpose_b == Transpose::kYes ? shape.k : panel.cols;
    }
    product = &products_.find(key);
    run.scratch_bytes = std::max(run.scratch_bytes, static_cast<int64_t>(product->scratch_bytes()));
  }
  run.scratch_bytes = ceil_div(run.scratch_bytes, 64) * 64;
  run.scratch = workspace_.take<std::byte>(run.scratch_bytes * threads());
  if (run.through_f32) {
    run.a_elements = run.panels.rows * shape.k;
    run.b_elements = run.panels.cols * shape.k;
    run.a = workspace_.take<float>(run.a_elements * threads());
    run.b = workspace_.take<float>(run.b_elements * threads());
  }
  return run;
}

void CpuOps::run_panel(const MatmulArgs& args, const PanelRun& run, int64_t index, int thread,
                       const PanelTarget& target) {
  const Panel panel = panel_at(run.panels, run.shape, index);
  const Tensor a = operand_part(args.a, args.transpose_a, panel.row, panel.rows, run.shape.k);
  const Tensor b =
      operand_part(args.b, args.transpose_b == Transpose::kYes ? Transpose::kNo : Transpose::kYes,
                   panel.col, panel.cols, run.shape.k);
  ProductOperands operands;
  operands.a = a.data();
  operands.b = b.data();
  if (run.through_f32) {
    const auto convert = [&](const Tensor& from, float* to) {
      for (int64_t r = 0; r < from.shape(0); ++r) {
        kernels_.to_f32(from.as<BF16>() + r * from.stride(0), to + r * from.shape(1),
                        from.shape(1));
      }
      return to;
    };
    operands.a = convert(a, run.a + thread * run.a_elements);
    operands.b = convert(b, run.b + thread * run.b_elements);
  }
  operands.bias = target.bias;
  operands.c = target.c;
  operands.scratch = run.scratch + thread * run.scratch_bytes;
  run.products[run.kind_of(panel)]->execute(operands, thread, products_.stream(thread));
}

void CpuOps::matmul(Stream&, const MatmulArgs& args) {
  const MatmulShape shape = check_matmul(args);
  if (shape.m == 0 || shape.n == 0) return;
  CHECK_GT(shape.k, 0);
  const SerialOpenMP serial;
  const Workspace::Scope scope(workspace_);
  const bool native = args.a.dtype() == DType::kF32 || bf16_product_ == BF16Product::kNative;
  const float* bias = args.bias.is_absent() ? nullptr : args.bias.as<float>();
  if (native) {
    const PanelRun run = prepare_panels(args, shape,
                                        {.c_stride = args.c.stride(0),
                                         .out = args.c.dtype(),
                                         .accumulate = args.accumulate,
                                         .has_bias = bias != nullptr});
    pool_.run(run.panels.along_m * run.panels.along_n, [&](int64_t index, int thread) {
      const Panel panel = panel_at(run.panels, run.shape, index);
      void* c = element(args.c, panel.row * args.c.stride(0) + panel.col);
      run_panel(args, run, index, thread, {c, bias == nullptr ? nullptr : bias + panel.col});
    });
    return;
  }
  run_tiles(args, shape, [&](const TileResult& tile) {
    const auto kernel = kernels_.epilogue[type_index(args.c.dtype())];
    for (int64_t r = 0; r < tile.rows; ++r) {
      kernel(tile.data + r * tile.cols, bias == nullptr ? nullptr : bias + tile.col,
             element(args.c, (tile.row + r) * args.c.stride(0) + tile.col), tile.cols,
             args.accumulate == Accumulate::kAdd ? 1 : 0);
    }
  });
}

// Panels of an f32 product, each into a tile of its thread; f takes it while it is in the cache.
template <typename Fn>
void CpuOps::run_tiles(const MatmulArgs& args, const MatmulShape& shape, Fn&& f) {
  const Panels panels = plan_panels(shape);
  const int64_t tile_elements = panels.rows * panels.cols;
  auto* tiles = workspace_.take<float>(tile_elements * threads());
  const PanelRun run = prepare_panels(args, shape, {.c_stride = 0, .out = DType::kF32});
  pool_.run(panels.along_m * panels.along_n, [&](int64_t index, int thread) {
    const Panel panel = panel_at(panels, shape, index);
    float* tile = tiles + thread * tile_elements;
    run_panel(args, run, index, thread, {tile, nullptr});
    f(TileResult{tile, panel.row, panel.col, panel.rows, panel.cols});
  });
}

void CpuOps::weight_gradient(Stream&, const Tensor& dy, const Tensor& x, const GradSink& sink) {
  const MatmulShape shape = check_weight_gradient(dy, x, sink);
  if (shape.m == 0 || shape.n == 0 || shape.k == 0) return;
  const SerialOpenMP serial;
  const Workspace::Scope scope(workspace_);
  run_tiles({.a = dy, .b = x, .transpose_a = Transpose::kYes}, shape, [&](const TileResult& tile) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      add_to_sink(kernels_, tile.data + r * tile.cols, (tile.row + r) * shape.n + tile.col,
                  tile.cols, sink);
    }
  });
}

void CpuOps::column_sum(Stream&, const Tensor& x, const Tensor& out) {
  const auto [rows, cols] = check_matrix(x);
  check_compute_dtype(x);
  check_f32_vector(out, cols);
  constexpr int64_t kColumns = 256;
  const auto kernel = kernels_.column_sum[type_index(x.dtype())];
  const int64_t row_total = rows;
  const int64_t width = cols;
  pool_.run(ceil_div(cols, kColumns), [&](int64_t piece, int) {
    const int64_t begin = piece * kColumns;
    kernel(element(x, begin), row_total, x.stride(0), out.as<float>() + begin,
           std::min(kColumns, width - begin));
  });
}

}  // namespace perdure::kernels::cpu
