// Embeddings. Backward: rows are grouped by token in a fixed order, so that each table row is
// summed by one thread in row order and reaches the sink once.

#include <algorithm>

#include "kernels/cpu/cpu_ops.h"

namespace perdure::kernels::cpu {
namespace {

constexpr int64_t kGroupPiece = 32;

}  // namespace

void CpuOps::embedding_forward(Stream&, const Tensor& tokens, const Tensor& table,
                               const Tensor& position_table, int64_t time, const Tensor& y) {
  check_embedding_forward(tokens, table, position_table, time, y);
  const auto* token = tokens.as<int32_t>();
  const auto kernel = kernels_.embed[type_index(table.dtype())];
  const int64_t cols = y.shape(1);
  for_row_pieces(y.shape(0), cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      CHECK(token[r] >= 0 && token[r] < table.shape(0)) << "token " << token[r];
      const std::byte* position =
          position_table.is_absent() ? nullptr
                                     : element(position_table, r % time * position_table.stride(0));
      kernel(element(table, token[r] * table.stride(0)), position, y.as<float>() + r * y.stride(0),
             cols);
    }
  });
}

void CpuOps::embedding_backward(Stream&, const Tensor& tokens, const Tensor& dy,
                                const GradSink& sink) {
  check_embedding_backward(tokens, dy, sink);
  const auto* token = tokens.as<int32_t>();
  const int64_t rows = dy.shape(0);
  const int64_t cols = dy.shape(1);
  const Workspace::Scope scope(workspace_);
  auto* order = workspace_.take<uint64_t>(rows);  // token, then row
  for (int64_t r = 0; r < rows; ++r) {
    CHECK(token[r] >= 0 && token[r] < sink.elements / cols) << "token " << token[r];
    order[r] = static_cast<uint64_t>(token[r]) << 32 | static_cast<uint64_t>(r);
  }
  std::sort(order, order + rows);
  auto* sums = workspace_.take<float>(cols * threads());
  const auto row_of = [&](int64_t i) {
    return dy.as<float>() + static_cast<int64_t>(order[i] & 0xffffffffu) * dy.stride(0);
  };
  pool_.run((rows + kGroupPiece - 1) / kGroupPiece, [&](int64_t piece, int thread) {
    const int64_t begin = piece * kGroupPiece;
    const int64_t end = std::min(rows, begin + kGroupPiece);
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t group = order[i] >> 32;
      if (i > 0 && order[i - 1] >> 32 == group) continue;
      const float* gradient = row_of(i);
      int64_t next = i + 1;
      if (next < rows && order[next] >> 32 == group) {
        float* sum = sums + thread * cols;
        std::copy(gradient, gradient + cols, sum);
        for (; next < rows && order[next] >> 32 == group; ++next)
          kernels_.add[0](row_of(next), sum, cols);
        gradient = sum;
      }
      add_to_sink(kernels_, gradient, static_cast<int64_t>(group) * cols, cols, sink);
    }
  });
}

void CpuOps::position_backward(Stream&, const Tensor& dy, int64_t time, const GradSink& sink) {
  check_position_backward(dy, time, sink);
  const int64_t rows = dy.shape(0);
  const int64_t cols = dy.shape(1);
  const Workspace::Scope scope(workspace_);
  auto* sums = workspace_.take<float>(cols * threads());
  pool_.run(std::min(time, rows), [&](int64_t position, int thread) {
    float* sum = sums + thread * cols;
    const float* first = dy.as<float>() + position * dy.stride(0);
    std::copy(first, first + cols, sum);
    for (int64_t r = position + time; r < rows; r += time) {
      kernels_.add[0](dy.as<float>() + r * dy.stride(0), sum, cols);
    }
    add_to_sink(kernels_, sum, position * cols, cols, sink);
  });
}

}  // namespace perdure::kernels::cpu
