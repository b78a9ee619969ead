// Matrix products, cut into panels of the result. A panel is one single-threaded product, never
// split along K, of dense operands into a dense tile of its thread; bias, accumulation, rounding
// and fixed point follow while the tile is in the cache. So bits depend on shapes only: not on
// threads, on strides, or on what becomes of the tile. docs/decisions/0001-matrix-products.md has
// the measurements.

#include <algorithm>
#include <cstring>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {
namespace {

// Part of the numerics: oneDNN picks its blocking, and with it the rounding, by the shape of a
// panel.
constexpr int64_t kPanelRows = 256;
constexpr int64_t kPanelCols = 768;
constexpr int64_t kPanelsWanted = 6;
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
  Tensor a, b;  // dense as stored
  Transpose transpose_a, transpose_b;
  MatmulShape shape;
  Panels panels;
  Product* products[4] = {};  // + 1: last along M, + 2: last along N
  float* tiles = nullptr;     // the result of a panel, per thread
  std::byte* scratch = nullptr;
  int64_t scratch_bytes = 0;  // of one thread
  bool through_f32 = false;   // operands of a panel are converted first
  float* a_f32 = nullptr;     // per thread
  float* b_f32 = nullptr;

  int kind_of(const Panel& panel) const {
    return (panel.rows < panels.rows ? 1 : 0) + (panel.cols < panels.cols ? 2 : 0);
  }
};

// oneDNN rounds differently for other row strides, so it only ever sees dense operands: others are
// copied.
Tensor CpuOps::make_dense(const Tensor& x) {
  const int64_t rows = x.shape(0);
  const int64_t cols = x.shape(1);
  if (x.is_dense()) return Tensor::matrix(x.data(), x.dtype(), rows, cols);
  const auto width = static_cast<int64_t>(size_bytes(x.dtype()));
  const Tensor dense =
      Tensor::matrix(workspace_.take<std::byte>(rows * cols * width), x.dtype(), rows, cols);
  for_row_pieces(rows, cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(element(dense, r * cols), element(x, r * x.stride(0)),
                  static_cast<size_t>(cols * width));
    }
  });
  return dense;
}

CpuOps::PanelRun CpuOps::prepare_panels(const MatmulArgs& args, const MatmulShape& shape) {
  PanelRun run;
  run.a = make_dense(args.a);
  run.b = make_dense(args.b);
  run.transpose_a = args.transpose_a;
  run.transpose_b = args.transpose_b;
  run.shape = shape;
  run.panels = plan_panels(shape);
  run.through_f32 = args.a.dtype() == DType::kBF16 && bf16_product_ == BF16Product::kThroughF32;
  ProductKey key{.k = shape.k,
                 .in = run.through_f32 ? DType::kF32 : args.a.dtype(),
                 .transpose_a = args.transpose_a,
                 .transpose_b = args.transpose_b};
  for (int64_t index = 0; index < run.panels.along_m * run.panels.along_n; ++index) {
    const Panel panel = panel_at(run.panels, shape, index);
    Product*& product = run.products[run.kind_of(panel)];
    if (product != nullptr) continue;
    key.m = panel.rows;
    key.n = panel.cols;
    key.a_stride = run.a.stride(0);
    key.b_stride = run.b.stride(0);
    if (run.through_f32) {
      key.a_stride = args.transpose_a == Transpose::kYes ? panel.rows : shape.k;
      key.b_stride = args.transpose_b == Transpose::kYes ? shape.k : panel.cols;
    }
    product = &products_.find(key);
    run.scratch_bytes = std::max(run.scratch_bytes, static_cast<int64_t>(product->scratch_bytes()));
  }
  run.scratch_bytes = ceil_div(run.scratch_bytes, 64) * 64;
  run.scratch = workspace_.take<std::byte>(run.scratch_bytes * threads());
  run.tiles = workspace_.take<float>(run.panels.rows * run.panels.cols * threads());
  if (run.through_f32) {
    run.a_f32 = workspace_.take<float>(run.panels.rows * shape.k * threads());
    run.b_f32 = workspace_.take<float>(run.panels.cols * shape.k * threads());
  }
  return run;
}

// The f32 product of one panel, in the tile of the thread.
CpuOps::TileResult CpuOps::run_panel(const PanelRun& run, int64_t index, int thread) {
  const Panel panel = panel_at(run.panels, run.shape, index);
  const Transpose b_flipped = run.transpose_b == Transpose::kYes ? Transpose::kNo : Transpose::kYes;
  const Tensor a = operand_part(run.a, run.transpose_a, panel.row, panel.rows, run.shape.k);
  const Tensor b = operand_part(run.b, b_flipped, panel.col, panel.cols, run.shape.k);
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
    operands.a = convert(a, run.a_f32 + thread * run.panels.rows * run.shape.k);
    operands.b = convert(b, run.b_f32 + thread * run.panels.cols * run.shape.k);
  }
  float* tile = run.tiles + thread * run.panels.rows * run.panels.cols;
  operands.c = tile;
  operands.scratch = run.scratch + thread * run.scratch_bytes;
  run.products[run.kind_of(panel)]->execute(operands, thread, products_.stream(thread));
  return {tile, panel.row, panel.col, panel.rows, panel.cols};
}

template <typename Fn>
void CpuOps::run_tiles(const MatmulArgs& args, const MatmulShape& shape, Fn&& f) {
  if (shape.m == 0 || shape.n == 0) return;
  CHECK_GT(shape.k, 0);
  const SerialOpenMP serial;
  const Workspace::Scope scope(workspace_);
  const PanelRun run = prepare_panels(args, shape);
  pool_.run(run.panels.along_m * run.panels.along_n,
            [&](int64_t index, int thread) { f(run_panel(run, index, thread)); });
}

void CpuOps::matmul(Stream&, const MatmulArgs& args) {
  const MatmulShape shape = check_matmul(args);
  const float* bias = args.bias.is_absent() ? nullptr : args.bias.as<float>();
  const auto kernel = kernels_.epilogue[type_index(args.c.dtype())];
  const int add = args.accumulate == Accumulate::kAdd ? 1 : 0;
  run_tiles(args, shape, [&](const TileResult& tile) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      kernel(tile.data + r * tile.cols, bias == nullptr ? nullptr : bias + tile.col,
             element(args.c, (tile.row + r) * args.c.stride(0) + tile.col), tile.cols, add);
    }
  });
}

void CpuOps::weight_gradient(Stream&, const Tensor& dy, const Tensor& x, const GradSink& sink) {
  const MatmulShape shape = check_weight_gradient(dy, x, sink);
  run_tiles({.a = dy, .b = x, .transpose_a = Transpose::kYes}, shape, [&](const TileResult& tile) {
    for (int64_t r = 0; r < tile.rows; ++r) {
      const int64_t begin = (tile.row + r) * shape.n + tile.col;
      add_to_sink(kernels_, tile.data + r * tile.cols, begin, tile.cols, sink);
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
