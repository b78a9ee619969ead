#pragma once
// CHECK: what can only be a bug. On in release builds. It prints what and where, flushes, and
// aborts this process: Perdure recovers from a dead worker, not from a wrong one.
//
//   CHECK(rank < size) << "rank " << rank;
//   CHECK_EQ(shape.rows(), out.rows());

#include <sstream>
#include <string>

namespace perdure::base {

// Collects the message of a failed check; its destructor prints and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* expression);
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives `CHECK(x) << ...` the type void in both arms of the conditional.
struct CheckVoidify {
  void operator&(std::ostream&) const {}
};

template <typename A, typename B>
std::string check_operands(const A& a, const B& b) {
  std::ostringstream out;
  out << " (" << a << " vs " << b << ") ";
  return out.str();
}

}  // namespace perdure::base

#define CHECK(condition)                  \
  (__builtin_expect(!!(condition), 1))    \
      ? (void)0                           \
      : ::perdure::base::CheckVoidify() & \
            ::perdure::base::CheckFailure(__FILE__, __LINE__, #condition).stream()

#define CHECK_OP_(a, b, op)                                                               \
  (__builtin_expect(!!((a)op(b)), 1))                                                     \
      ? (void)0                                                                           \
      : ::perdure::base::CheckVoidify() &                                                 \
            ::perdure::base::CheckFailure(__FILE__, __LINE__, #a " " #op " " #b).stream() \
                << ::perdure::base::check_operands((a), (b))

#define CHECK_EQ(a, b) CHECK_OP_(a, b, ==)
#define CHECK_NE(a, b) CHECK_OP_(a, b, !=)
#define CHECK_LT(a, b) CHECK_OP_(a, b, <)
#define CHECK_LE(a, b) CHECK_OP_(a, b, <=)
#define CHECK_GT(a, b) CHECK_OP_(a, b, >)
#define CHECK_GE(a, b) CHECK_OP_(a, b, >=)
