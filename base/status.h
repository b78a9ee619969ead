#pragma once
// Status and Result<T>: what can go wrong in the field. A bug is a CHECK instead (base/check.h).
//
//   Status save(...);                       // caller must look: [[nodiscard]]
//   Result<int> parse(std::string_view);
//   ASSIGN_OR_RETURN(const int n, parse(text));
//   RETURN_IF_ERROR(save(n));

#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace perdure::base {

// Decides behaviour; the text is for people. A new code needs a caller that acts on it.
enum class StatusCode {
  kOk = 0,
  kCancelled,          // asked to stop: pass it on, never swallow
  kDeadlineExceeded,   // took too long
  kUnavailable,        // the peer is gone
  kAborted,            // stale epoch or fenced: stop and re-join
  kDataLoss,           // checksum or format is wrong: never use, never retry as is
  kResourceExhausted,  // memory, disk, descriptors, queue
  kInvalidArgument,    // the input is wrong, and stays wrong
  kNotFound,
  kAlreadyExists,
  kFailedPrecondition,  // right call, wrong state
  kInternal,
  kUnimplemented,
};

std::string_view to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(StatusCode code, std::string message);

  static Status ok() { return Status(); }
  bool is_ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same error, its text led by where it happened: "loading a.toml: <message>".
  Status annotate(std::string_view prefix) const;
  std::string to_string() const;

  friend bool operator==(const Status& a, const Status& b) {
    return a.code_ == b.code_ && a.message_ == b.message_;
  }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

std::ostream& operator<<(std::ostream& out, const Status& status);

inline Status cancelled(std::string m) { return {StatusCode::kCancelled, std::move(m)}; }
inline Status deadline_exceeded(std::string m) {
  return {StatusCode::kDeadlineExceeded, std::move(m)};
}
inline Status unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status aborted(std::string m) { return {StatusCode::kAborted, std::move(m)}; }
inline Status data_loss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }
inline Status resource_exhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status invalid_argument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status not_found(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status already_exists(std::string m) { return {StatusCode::kAlreadyExists, std::move(m)}; }
inline Status failed_precondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
inline Status internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
inline Status unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit by design
    CHECK(!status_.is_ok()) << "a Result without a value needs an error";
  }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    CHECK(is_ok()) << status_;
    return *value_;
  }
  const T& value() const& {
    CHECK(is_ok()) << status_;
    return *value_;
  }
  T&& value() && {
    CHECK(is_ok()) << status_;
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

}  // namespace perdure::base

#define PERDURE_CONCAT_INNER_(a, b) a##b
#define PERDURE_CONCAT_(a, b) PERDURE_CONCAT_INNER_(a, b)

#define RETURN_IF_ERROR(expression)                         \
  do {                                                      \
    ::perdure::base::Status perdure_status_ = (expression); \
    if (!perdure_status_.is_ok()) return perdure_status_;   \
  } while (false)

#define ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                   \
  if (!result.is_ok()) return result.status();                  \
  declaration = std::move(result).value()

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_IMPL_(PERDURE_CONCAT_(perdure_result_, __LINE__), declaration, expression)

// The same inside a coroutine that returns Task<Status> or Task<Result<T>>.
#define CO_RETURN_IF_ERROR(expression)                       \
  do {                                                       \
    ::perdure::base::Status perdure_status_ = (expression);  \
    if (!perdure_status_.is_ok()) co_return perdure_status_; \
  } while (false)

#define CO_ASSIGN_OR_RETURN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                      \
  if (!result.is_ok()) co_return result.status();                  \
  declaration = std::move(result).value()

#define CO_ASSIGN_OR_RETURN(declaration, expression) \
  CO_ASSIGN_OR_RETURN_IMPL_(PERDURE_CONCAT_(perdure_result_, __LINE__), declaration, expression)
