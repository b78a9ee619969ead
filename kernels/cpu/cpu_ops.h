#pragma once
// CpuOps: the ops of ops.h on the host's processors. Each op checks its arguments, is cut into
// pieces whose borders depend on shapes only, and gives them to the thread pool; each piece is one
// call of a kernel.

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/onednn_product.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/workspace.h"
#include "kernels/op_checks.h"
#include "kernels/ops.h"

namespace perdure::kernels::cpu {

struct CpuOpsOptions {
  int threads = 1;
  HostRegion workspace;
  const KernelTable* kernels = nullptr;  // null: the best of this machine
  BF16Product bf16_product = BF16Product::kThroughF32;
};

class CpuOps final : public Ops {
 public:
  explicit CpuOps(CpuOpsOptions options);

  const KernelTable& kernels() const { return kernels_; }
  BF16Product bf16_product() const { return bf16_product_; }
  int threads() const { return pool_.threads(); }
  size_t workspace_bytes() const { return workspace_.size_bytes(); }

  void fill_zero(Stream& s, const Tensor& x) override;
  void copy(Stream& s, const Tensor& from, const Tensor& to) override;
  void add(Stream& s, const Tensor& x, const Tensor& y) override;
  void embedding_forward(Stream& s, const Tensor& tokens, const Tensor& table,
                         const Tensor& position_table, int64_t time, const Tensor& y) override;
  void embedding_backward(Stream& s, const Tensor& tokens, const Tensor& dy,
                          const GradSink& sink) override;
  void position_backward(Stream& s, const Tensor& dy, int64_t time, const GradSink& sink) override;
  void layer_norm_forward(Stream& s, const NormArgs& args) override;
  void layer_norm_backward(Stream& s, const NormGradArgs& args) override;
  void rms_norm_forward(Stream& s, const NormArgs& args) override;
  void rms_norm_backward(Stream& s, const NormGradArgs& args) override;
  void rope_table(Stream& s, float theta, const Tensor& table) override;
  void rope(Stream& s, const Tensor& x, const Tensor& table, RopeDirection direction) override;
  void attention_forward(Stream& s, const AttentionArgs& args) override;
  void attention_backward(Stream& s, const AttentionGradArgs& args) override;
  void gelu_forward(Stream& s, const Tensor& x, const Tensor& y) override;
  void gelu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void swiglu_forward(Stream& s, const Tensor& x, const Tensor& y) override;
  void swiglu_backward(Stream& s, const Tensor& x, const Tensor& dy, const Tensor& dx) override;
  void matmul(Stream& s, const MatmulArgs& args) override;
  void weight_gradient(Stream& s, const Tensor& dy, const Tensor& x, const GradSink& sink) override;
  void column_sum(Stream& s, const Tensor& x, const Tensor& out) override;
  void softmax_begin(Stream& s, const SoftmaxState& state) override;
  void softmax_update(Stream& s, const Tensor& logits, const Tensor& targets,
                      int64_t vocabulary_begin, const SoftmaxState& state) override;
  void softmax_loss(Stream& s, const SoftmaxState& state, const Tensor& loss) override;
  void softmax_backward(Stream& s, const Tensor& logits, const Tensor& targets,
                        int64_t vocabulary_begin, const SoftmaxState& state, float scale,
                        const Tensor& dlogits) override;
  void accumulate_gradient(Stream& s, const Tensor& g, const GradSink& sink) override;
  void gradient_squared_norm(Stream& s, const GradSink& gradient, const Tensor& out) override;
  void adamw(Stream& s, const AdamwArgs& args) override;
  void state_digests(Stream& s, const Tensor& param, const Tensor& m, const Tensor& v,
                     std::span<uint64_t> digests) override;

 private:
  struct PanelRun;  // matmul.cc
  struct TileResult {
    const float* data;  // [rows, cols] dense: rows from `row`, columns from `col` of the result
    int64_t row, col, rows, cols;
  };

  void norm_forward(const NormArgs& args, NormKind kind);
  void norm_backward(const NormGradArgs& args, NormKind kind);
  Tensor make_dense(const Tensor& x);
  PanelRun prepare_panels(const MatmulArgs& args, const MatmulShape& shape);
  TileResult run_panel(const PanelRun& run, int64_t index, int thread);
  template <typename Fn>
  void run_tiles(const MatmulArgs& args, const MatmulShape& shape, Fn&& f);

  // Calls f(begin, end, thread) for pieces of rows; a piece has about kPieceElements elements.
  template <typename Fn>
  void for_row_pieces(int64_t rows, int64_t cols, Fn&& f) {
    const int64_t per_piece = cols >= kPieceElements ? 1 : kPieceElements / (cols > 0 ? cols : 1);
    pool_.run((rows + per_piece - 1) / per_piece, [&](int64_t piece, int thread) {
      const int64_t begin = piece * per_piece;
      f(begin, rows - begin < per_piece ? rows : begin + per_piece, thread);
    });
  }

  static constexpr int64_t kPieceElements = 16384;

  const KernelTable& kernels_;
  BF16Product bf16_product_;
  Workspace workspace_;
  ThreadPool pool_;
  ProductCache products_;
};

// Address of an element, whatever the type.
inline std::byte* element(const Tensor& x, int64_t offset) {
  return static_cast<std::byte*>(x.data()) + static_cast<size_t>(offset) * size_bytes(x.dtype());
}

// Adds g[0, count), the gradient of elements [begin, begin + count), to the sink. Threads may do so
// at once for different elements: abs_max and flags are atomic, and a maximum has no order.
void add_to_sink(const KernelTable& kernels, const float* g, int64_t begin, int64_t count,
                 const GradSink& sink);

}  // namespace perdure::kernels::cpu
