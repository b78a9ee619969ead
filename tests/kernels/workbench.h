#pragma once
// Workbench: makes the operands of one op on one device, so that the same case can run on two
// devices, with another placement in memory, or with another number of threads, and the results be
// compared.
//
// Values depend on (seed, number of the operand) only, never on the placement. Everything around an
// operand is filled with a pattern; check_memory() finds writes outside outputs, and inputs that
// were changed.

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/gradient.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace perdure::kernels::testing {

// Where operands lie: number i is shifted by (i * shift_step + shift_first) elements from a 64-byte
// border, and rows are pad elements (plus i) longer than they must be.
struct Placement {
  int64_t shift_first = 0;
  int64_t shift_step = 0;
  int64_t pad = 0;
};

enum class Fill { kNormal, kPositive, kSmall, kPoison, kZero };
enum class Role { kInput, kOutput, kInOut };

struct OutputTolerance {
  double relative = 0.0;  // of |expected|
  double spread = 0.0;    // of the root mean square of all expected values
  double absolute = 0.0;  // where the exact result is near 0 and its terms are near 1
};

// An output as dense doubles and as raw dense bytes.
struct Output {
  std::string name;
  DType dtype;
  std::vector<double> values;
  std::vector<std::byte> bytes;
  OutputTolerance tolerance;
};

class Workbench {
 public:
  Workbench(Device& device, const Placement& placement, uint64_t seed);
  ~Workbench();

  Ops& ops() { return device_.ops(); }
  Stream& stream() { return *stream_; }
  double next_uniform();  // for cases that need a number of their own

  Tensor matrix(const std::string& name, DType dtype, int64_t rows, int64_t cols, Fill fill,
                Role role);
  Tensor vector(const std::string& name, DType dtype, int64_t size, Fill fill, Role role);
  Tensor heads(const std::string& name, DType dtype, int64_t batch, int64_t time, int64_t heads,
               int64_t head_size, Fill fill, Role role);
  Tensor dense(const std::string& name, DType dtype, std::initializer_list<int64_t> shape,
               Fill fill, Role role);
  Tensor tokens(const std::string& name, int64_t rows, int64_t vocabulary);
  GradSink sink(const std::string& name, GradKind kind, int64_t elements, int64_t block_elements,
                Role role = Role::kInOut);
  std::span<uint64_t> digests(int64_t count);
  std::span<std::byte> workspace(size_t bytes);

  // What tests compare an output with: see OutputTolerance. Applies to outputs made from now on.
  void set_tolerance(const OutputTolerance& tolerance) { tolerance_ = tolerance; }
  // The operand is read and written back by the caller: finite differences.
  Tensor operand(const std::string& name) const;

  std::vector<Output> outputs() const;
  // "" or what was overwritten.
  std::string check_memory() const;

 private:
  struct Operand;
  Operand& add(const std::string& name, DType dtype, int64_t rows, int64_t cols, Fill fill,
               Role role, bool padded);

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Placement placement_;
  uint64_t seed_;
  uint64_t random_;
  OutputTolerance tolerance_;
  std::vector<std::unique_ptr<Operand>> operands_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> storage_;
  std::vector<std::unique_ptr<std::atomic<uint32_t>>> flags_;
};

// A case: makes operands on the workbench and returns the call to be tested.
struct OpCase {
  std::string name;
  std::function<std::function<void()>(Workbench&)> make;
};
std::ostream& operator<<(std::ostream& out, const OpCase& op_case);

double load_element(const Tensor& x, int64_t offset);

}  // namespace perdure::kernels::testing
