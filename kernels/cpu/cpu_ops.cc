// Construction, data movement and activations.

#include "kernels/cpu/cpu_ops.h"

#include <cstring>

namespace perdure::kernels::cpu {
namespace {

// Elementwise ops see dense tensors as one long row, cut into pieces of this many elements.
constexpr int64_t kDensePiece = 16384;

bool all_dense(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    if (!tensor->is_dense()) return false;
  }
  return true;
}

struct RowView {
  int64_t rows, cols;
  bool dense;
};

RowView view_rows(std::initializer_list<const Tensor*> tensors) {
  const Tensor& first = **tensors.begin();
  const int64_t elements = first.elements();
  if (all_dense(tensors)) return {(elements + kDensePiece - 1) / kDensePiece, kDensePiece, true};
  return {row_count(first), first.shape(first.rank() - 1), false};
}

int64_t offset_of(const Tensor& x, const RowView& view, int64_t row) {
  return view.dense ? row * kDensePiece : row_offset(x, row);
}

int64_t length_of(const Tensor& x, const RowView& view, int64_t row) {
  if (!view.dense) return view.cols;
  const int64_t left = x.elements() - row * kDensePiece;
  return left < kDensePiece ? left : kDensePiece;
}

}  // namespace

CpuOps::CpuOps(CpuOpsOptions options)
    : kernels_(options.kernels != nullptr ? *options.kernels : best_kernels()),
      bf16_product_(options.bf16_product),
      workspace_(std::move(options.workspace)),
      pool_(options.threads, [] { SerialOpenMP::set_for_this_thread(); }),
      products_(options.threads) {}

void CpuOps::fill_zero(Stream&, const Tensor& x) {
  CHECK(x.is_dense()) << x.to_string();
  const int64_t bytes = x.elements() * static_cast<int64_t>(size_bytes(x.dtype()));
  constexpr int64_t kPiece = int64_t{256} << 10;
  pool_.run((bytes + kPiece - 1) / kPiece, [&](int64_t piece, int) {
    const int64_t left = bytes - piece * kPiece;
    std::memset(static_cast<std::byte*>(x.data()) + piece * kPiece, 0,
                static_cast<size_t>(left < kPiece ? left : kPiece));
  });
}

void CpuOps::copy(Stream&, const Tensor& from, const Tensor& to) {
  check_copy(from, to);
  const RowView view = view_rows({&from, &to});
  for_row_pieces(view.rows, view.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t n = length_of(from, view, r);
      const std::byte* source = element(from, offset_of(from, view, r));
      std::byte* target = element(to, offset_of(to, view, r));
      if (from.dtype() == to.dtype()) {
        std::memcpy(target, source, static_cast<size_t>(n) * size_bytes(from.dtype()));
      } else if (to.dtype() == DType::kBF16) {
        kernels_.to_bf16(reinterpret_cast<const float*>(source), reinterpret_cast<BF16*>(target),
                         n);
      } else {
        kernels_.to_f32(reinterpret_cast<const BF16*>(source), reinterpret_cast<float*>(target), n);
      }
    }
  });
}

void CpuOps::add(Stream&, const Tensor& x, const Tensor& y) {
  check_add(x, y);
  const RowView view = view_rows({&x, &y});
  const auto kernel = kernels_.add[type_index(x.dtype())];
  for_row_pieces(view.rows, view.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernel(element(x, offset_of(x, view, r)),
             reinterpret_cast<float*>(element(y, offset_of(y, view, r))), length_of(x, view, r));
    }
  });
}

void CpuOps::gelu_forward(Stream&, const Tensor& x, const Tensor& y) {
  check_activation(x, y);
  const RowView view = view_rows({&x, &y});
  const auto kernel = kernels_.gelu_forward[type_index(x.dtype())];
  for_row_pieces(view.rows, view.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernel(element(x, offset_of(x, view, r)), element(y, offset_of(y, view, r)),
             length_of(x, view, r));
    }
  });
}

void CpuOps::gelu_backward(Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_activation(x, dy);
  check_activation(x, dx);
  const RowView view = view_rows({&x, &dy, &dx});
  const auto kernel = kernels_.gelu_backward[type_index(x.dtype())];
  for_row_pieces(view.rows, view.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernel(element(x, offset_of(x, view, r)), element(dy, offset_of(dy, view, r)),
             element(dx, offset_of(dx, view, r)), length_of(x, view, r));
    }
  });
}

void CpuOps::swiglu_forward(Stream&, const Tensor& x, const Tensor& y) {
  const auto [rows, cols] = check_swiglu(x, y);
  const auto kernel = kernels_.swiglu_forward[type_index(x.dtype())];
  const int64_t width = cols;
  for_row_pieces(rows, 2 * cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * x.stride(0);
      kernel(element(x, at), element(x, at + width), element(y, r * y.stride(0)), width);
    }
  });
}

void CpuOps::swiglu_backward(Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  const auto [rows, cols] = check_swiglu(x, dy);
  check_activation(x, dx);
  const auto kernel = kernels_.swiglu_backward[type_index(x.dtype())];
  const int64_t width = cols;
  for_row_pieces(rows, 2 * cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      kernel(element(x, r * x.stride(0)), element(dy, r * dy.stride(0)),
             element(dx, r * dx.stride(0)), width);
    }
  });
}

}  // namespace perdure::kernels::cpu
