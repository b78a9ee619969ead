// Data movement and embeddings.

#include <cstring>

#include "kernels/reference/access.h"
#include "kernels/reference/reference_ops.h"

namespace perdure::kernels::reference {

void ReferenceOps::fill_zero(Stream&, const Tensor& x) {
  CHECK(x.is_dense()) << x.to_string();
  if (x.elements() > 0)
    std::memset(x.data(), 0, static_cast<size_t>(x.elements()) * size_bytes(x.dtype()));
}

void ReferenceOps::copy(Stream&, const Tensor& from, const Tensor& to) {
  check_copy(from, to);
  const int64_t cols = from.shape(from.rank() - 1);
  const size_t width = size_bytes(from.dtype());
  for (int64_t r = 0; r < row_count(from); ++r) {
    const int64_t source = row_offset(from, r);
    const int64_t target = row_offset(to, r);
    if (from.dtype() == to.dtype()) {
      std::memcpy(static_cast<std::byte*>(to.data()) + static_cast<size_t>(target) * width,
                  static_cast<const std::byte*>(from.data()) + static_cast<size_t>(source) * width,
                  static_cast<size_t>(cols) * width);
      continue;
    }
    for (int64_t c = 0; c < cols; ++c) store(to, target + c, load(from, source + c));
  }
}

void ReferenceOps::add(Stream&, const Tensor& x, const Tensor& y) {
  check_add(x, y);
  for (int64_t r = 0; r < x.shape(0); ++r) {
    for (int64_t c = 0; c < x.shape(1); ++c) {
      const int64_t at = r * y.stride(0) + c;
      store(y, at, load(y, at) + load(x, r * x.stride(0) + c));
    }
  }
}

void ReferenceOps::embedding_forward(Stream&, const Tensor& tokens, const Tensor& table,
                                     const Tensor& position_table, int64_t time, const Tensor& y) {
  check_embedding_forward(tokens, table, position_table, time, y);
  const auto* token = tokens.as<int32_t>();
  for (int64_t r = 0; r < y.shape(0); ++r) {
    CHECK(token[r] >= 0 && token[r] < table.shape(0)) << "token " << token[r];
    for (int64_t c = 0; c < y.shape(1); ++c) {
      double value = load(table, token[r] * table.stride(0) + c);
      if (!position_table.is_absent()) {
        value += load(position_table, r % time * position_table.stride(0) + c);
      }
      store(y, r * y.stride(0) + c, value);
    }
  }
}

void ReferenceOps::embedding_backward(Stream&, const Tensor& tokens, const Tensor& dy,
                                      const GradSink& sink) {
  check_embedding_backward(tokens, dy, sink);
  const auto* token = tokens.as<int32_t>();
  const auto* gradient = dy.as<float>();
  const int64_t rows = dy.shape(0);
  const int64_t cols = dy.shape(1);
  product_.resize(static_cast<size_t>(cols));
  for (int64_t r = 0; r < rows; ++r) {
    CHECK(token[r] >= 0 && token[r] < sink.elements / cols) << "token " << token[r];
    bool seen = false;
    for (int64_t before = 0; before < r && !seen; ++before) seen = token[before] == token[r];
    if (seen) continue;
    for (int64_t c = 0; c < cols; ++c) {
      float sum = gradient[r * dy.stride(0) + c];
      for (int64_t after = r + 1; after < rows; ++after) {
        if (token[after] == token[r]) sum += gradient[after * dy.stride(0) + c];
      }
      add_to_sink(sum, token[r] * cols + c, sink);
    }
  }
}

void ReferenceOps::position_backward(Stream&, const Tensor& dy, int64_t time,
                                     const GradSink& sink) {
  check_position_backward(dy, time, sink);
  const auto* gradient = dy.as<float>();
  const int64_t cols = dy.shape(1);
  for (int64_t p = 0; p < time && p < dy.shape(0); ++p) {
    for (int64_t c = 0; c < cols; ++c) {
      float sum = gradient[p * dy.stride(0) + c];
      for (int64_t r = p + time; r < dy.shape(0); r += time) sum += gradient[r * dy.stride(0) + c];
      add_to_sink(sum, p * cols + c, sink);
    }
  }
}

}  // namespace perdure::kernels::reference
