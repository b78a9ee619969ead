#include "tests/kernels/workbench.h"

#include <cmath>

#include "kernels/op_checks.h"

namespace perdure::kernels::testing {
namespace {

constexpr std::byte kPattern{0xa5};
constexpr int64_t kGuardBytes = 256;

uint64_t next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

double uniform(uint64_t* state) { return static_cast<double>(next(state) >> 11) * 0x1p-53; }

double normal(uint64_t* state) {
  const double radius = std::sqrt(-2.0 * std::log(uniform(state) + 1e-300));
  return radius * std::cos(6.283185307179586 * uniform(state));
}

double draw(Fill fill, uint64_t* state) {
  switch (fill) {
    case Fill::kNormal:
      return normal(state);
    case Fill::kPositive:
      return 0.1 + std::fabs(normal(state));
    case Fill::kSmall:
      return 0.05 * normal(state);
    case Fill::kPoison:
      return std::nan("");
    case Fill::kZero:
      return 0.0;
  }
  return 0.0;
}

void store_element(const Tensor& x, int64_t offset, double value) {
  switch (x.dtype()) {
    case DType::kF32:
      x.as<float>()[offset] = static_cast<float>(value);
      return;
    case DType::kBF16:
      x.as<BF16>()[offset] = BF16::from_float(static_cast<float>(value));
      return;
    case DType::kF64:
      x.as<double>()[offset] = value;
      return;
    case DType::kI32:
      x.as<int32_t>()[offset] = static_cast<int32_t>(value);
      return;
    case DType::kI64:
      x.as<int64_t>()[offset] = static_cast<int64_t>(value);
      return;
  }
}

}  // namespace

double load_element(const Tensor& x, int64_t offset) {
  switch (x.dtype()) {
    case DType::kF32:
      return static_cast<double>(x.as<float>()[offset]);
    case DType::kBF16:
      return static_cast<double>(x.as<BF16>()[offset].to_float());
    case DType::kF64:
      return x.as<double>()[offset];
    case DType::kI32:
      return x.as<int32_t>()[offset];
    case DType::kI64:
      return static_cast<double>(x.as<int64_t>()[offset]);
  }
  return 0.0;
}

struct Workbench::Operand {
  std::string name;
  Role role;
  Tensor view;  // [rows, cols]
  std::byte* begin = nullptr;
  size_t size = 0;                  // of the whole storage, with guards
  std::vector<std::byte> original;  // the whole storage after filling
  OutputTolerance tolerance;
};

Workbench::Workbench(Device& device, const Placement& placement, uint64_t seed)
    : device_(device),
      stream_(std::move(device.make_stream()).value()),
      placement_(placement),
      seed_(seed),
      random_(seed ^ 0x5851f42d4c957f2du) {}

Workbench::~Workbench() = default;

double Workbench::next_uniform() { return uniform(&random_); }

Workbench::Operand& Workbench::add(const std::string& name, DType dtype, int64_t rows, int64_t cols,
                                   Fill fill, Role role, bool padded) {
  const auto index = static_cast<int64_t>(operands_.size());
  const auto width = static_cast<int64_t>(size_bytes(dtype));
  const bool spread = padded && placement_.pad > 0;
  const int64_t stride = cols + (spread ? placement_.pad + index : 0);
  const int64_t shift = (placement_.shift_first + index * placement_.shift_step) % 16;

  auto operand = std::make_unique<Operand>();
  operand->name = name;
  operand->role = role;
  operand->tolerance = tolerance_;
  operand->size = static_cast<size_t>(2 * kGuardBytes + (shift + rows * stride) * width + 64);
  storage_.push_back(std::make_unique<std::vector<std::byte>>(operand->size + 64, kPattern));
  std::byte* base = storage_.back()->data();
  base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
  operand->begin = base;
  operand->view = Tensor::matrix(base + kGuardBytes + shift * width, dtype, rows, cols, stride);

  uint64_t state = seed_ + static_cast<uint64_t>(index) * 1000003u;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c)
      store_element(operand->view, r * stride + c, draw(fill, &state));
  }
  operand->original.assign(base, base + operand->size);
  operands_.push_back(std::move(operand));
  return *operands_.back();
}

Tensor Workbench::matrix(const std::string& name, DType dtype, int64_t rows, int64_t cols,
                         Fill fill, Role role) {
  return add(name, dtype, rows, cols, fill, role, true).view;
}

Tensor Workbench::vector(const std::string& name, DType dtype, int64_t size, Fill fill, Role role) {
  return Tensor::vector(add(name, dtype, 1, size, fill, role, false).view.data(), dtype, size);
}

Tensor Workbench::heads(const std::string& name, DType dtype, int64_t batch, int64_t time,
                        int64_t heads, int64_t head_size, Fill fill, Role role) {
  return add(name, dtype, batch * time, heads * head_size, fill, role, true)
      .view.as_heads(batch, time, heads, head_size);
}

Tensor Workbench::dense(const std::string& name, DType dtype, std::initializer_list<int64_t> shape,
                        Fill fill, Role role) {
  const Tensor plain = Tensor::dense(this, dtype, shape);
  return Tensor::dense(add(name, dtype, 1, plain.elements(), fill, role, false).view.data(), dtype,
                       shape);
}

Tensor Workbench::tokens(const std::string& name, int64_t rows, int64_t vocabulary) {
  Operand& operand = add(name, DType::kI32, 1, rows, Fill::kZero, Role::kInput, false);
  uint64_t state = seed_ + operands_.size() * 7919u;
  auto* token = operand.view.as<int32_t>();
  for (int64_t r = 0; r < rows; ++r) {
    token[r] = static_cast<int32_t>(next(&state) % static_cast<uint64_t>(vocabulary));
  }
  operand.original.assign(operand.begin, operand.begin + operand.size);
  return Tensor::vector(token, DType::kI32, rows);
}

GradSink Workbench::sink(const std::string& name, GradKind kind, int64_t elements,
                         int64_t block_elements, Role role) {
  const DType dtype = kind == GradKind::kFloat     ? DType::kF32
                      : kind == GradKind::kFixed32 ? DType::kI32
                                                   : DType::kI64;
  GradSink sink;
  sink.kind = kind;
  sink.elements = elements;
  sink.block_elements = block_elements;
  sink.limit = kind == GradKind::kFixed32 ? int64_t{1} << 28 : int64_t{1} << 50;
  Operand& operand = add(name, dtype, 1, elements, Fill::kNormal, role, false);
  if (kind != GradKind::kFloat) {
    uint64_t state = seed_ + 17;
    for (int64_t i = 0; i < elements; ++i) {
      const double bound =
          static_cast<double>(int64_t{1} << (kind == GradKind::kFixed32 ? 20 : 36));
      store_element(operand.view, i, std::floor(bound * normal(&state)));
    }
    operand.original.assign(operand.begin, operand.begin + operand.size);
  }
  sink.accumulator = operand.view.data();
  const int64_t blocks = sink.blocks();
  storage_.push_back(
      std::make_unique<std::vector<std::byte>>(static_cast<size_t>(blocks) * sizeof(int16_t)));
  auto* exponents = reinterpret_cast<int16_t*>(storage_.back()->data());
  uint64_t state = seed_ + 29;
  for (int64_t b = 0; b < blocks; ++b) {
    exponents[b] = static_cast<int16_t>((kind == GradKind::kFixed64 ? 38 : 20) + next(&state) % 3);
  }
  sink.exponents = exponents;
  sink.abs_max = vector(name + ".abs_max", DType::kF32, blocks, Fill::kZero, role).as<float>();
  flags_.push_back(std::make_unique<std::atomic<uint32_t>>(0));
  sink.flags = flags_.back().get();
  return sink;
}

std::span<uint64_t> Workbench::digests(int64_t count) {
  auto* data = dense("digests", DType::kI64, {count}, Fill::kZero, Role::kOutput).as<int64_t>();
  return {reinterpret_cast<uint64_t*>(data), static_cast<size_t>(count)};
}

std::span<std::byte> Workbench::workspace(size_t bytes) {
  storage_.push_back(std::make_unique<std::vector<std::byte>>(bytes + 64, kPattern));
  std::byte* base = storage_.back()->data();
  base += (64 - reinterpret_cast<uintptr_t>(base) % 64) % 64;
  return {base, bytes};
}

Tensor Workbench::operand(const std::string& name) const {
  for (const auto& operand : operands_) {
    if (operand->name == name) return operand->view;
  }
  CHECK(false) << "no operand " << name;
  return {};
}

std::vector<Output> Workbench::outputs() const {
  std::vector<Output> all;
  for (const auto& operand : operands_) {
    if (operand->role == Role::kInput) continue;
    const Tensor& x = operand->view;
    Output output{operand->name, x.dtype(), {}, {}, operand->tolerance};
    const size_t row_bytes = static_cast<size_t>(x.shape(1)) * size_bytes(x.dtype());
    for (int64_t r = 0; r < x.shape(0); ++r) {
      const int64_t at = r * x.stride(0);
      const auto* bytes =
          static_cast<const std::byte*>(x.data()) + static_cast<size_t>(at) * size_bytes(x.dtype());
      output.bytes.insert(output.bytes.end(), bytes, bytes + row_bytes);
      for (int64_t c = 0; c < x.shape(1); ++c) output.values.push_back(load_element(x, at + c));
    }
    all.push_back(std::move(output));
  }
  uint32_t raised = 0;
  for (const auto& flags : flags_) raised |= flags->load();
  Output flags{"flags", DType::kI32, {static_cast<double>(raised)}, {}, {}};
  flags.bytes.push_back(static_cast<std::byte>(raised));
  all.push_back(std::move(flags));
  return all;
}

std::string Workbench::check_memory() const {
  for (const auto& operand : operands_) {
    const Tensor& x = operand->view;
    std::vector<std::byte> now(operand->begin, operand->begin + operand->size);
    if (operand->role != Role::kInput) {
      // What may change is put back, the rest must be as it was.
      const size_t row_bytes = static_cast<size_t>(x.shape(1)) * size_bytes(x.dtype());
      for (int64_t r = 0; r < x.shape(0); ++r) {
        const auto at = static_cast<size_t>(static_cast<std::byte*>(x.data()) - operand->begin) +
                        static_cast<size_t>(r * x.stride(0)) * size_bytes(x.dtype());
        std::memcpy(now.data() + at, operand->original.data() + at, row_bytes);
      }
    }
    if (std::memcmp(now.data(), operand->original.data(), now.size()) != 0) {
      return operand->name + (operand->role == Role::kInput ? " is an input and was changed"
                                                            : ": memory around it was written");
    }
  }
  return "";
}

std::ostream& operator<<(std::ostream& out, const OpCase& op_case) { return out << op_case.name; }

}  // namespace perdure::kernels::testing
