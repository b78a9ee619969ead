#pragma once
// Matchers for Status and Result, and the seed of this test run.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "base/status.h"

namespace perdure::testing {

inline const base::Status& as_status(const base::Status& status) { return status; }
template <typename T>
const base::Status& as_status(const base::Result<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is ok") {
  const base::Status& status = as_status(arg);
  *result_listener << status.to_string();
  return status.is_ok();
}

MATCHER_P(StatusIs, code, "has the status code " + std::string(base::to_string(code))) {
  const base::Status& status = as_status(arg);
  *result_listener << status.to_string();
  return status.code() == code;
}

MATCHER_P2(StatusIs, code, text, "has the status code " + std::string(base::to_string(code))) {
  const base::Status& status = as_status(arg);
  *result_listener << status.to_string();
  return status.code() == code && ::testing::Value(status.message(), text);
}

// The seed that random tests start from: --seed=N, or a fixed default. The test main prints it
// first.
uint64_t test_seed();
void set_test_seed(uint64_t seed);

// Path of ../shared/data/<name> seen from the source root, or "" when this machine has none. Tests
// that need it begin with: if (path.empty()) GTEST_SKIP() << "needs ../shared/data/<name>";
std::string shared_data(const std::string& name);

}  // namespace perdure::testing

#define ASSERT_OK(expression) ASSERT_THAT((expression), ::perdure::testing::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT((expression), ::perdure::testing::IsOk())

// Takes the value out of a Result or fails the test.
#define ASSERT_OK_AND_ASSIGN_IMPL_(result, declaration, expression) \
  auto result = (expression);                                       \
  ASSERT_TRUE(result.is_ok()) << result.status();                   \
  declaration = std::move(result).value()
#define ASSERT_OK_AND_ASSIGN(declaration, expression)                                      \
  ASSERT_OK_AND_ASSIGN_IMPL_(PERDURE_CONCAT_(perdure_test_result_, __LINE__), declaration, \
                             expression)
