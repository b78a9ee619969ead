#include "tests/testing/matchers.h"

#include <filesystem>

namespace perdure::testing {
namespace {
uint64_t g_seed = 20240601;
}  // namespace

uint64_t test_seed() { return g_seed; }
void set_test_seed(uint64_t seed) { g_seed = seed; }

std::string shared_data(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path("../shared/data") / name;
  std::error_code error;
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

}  // namespace perdure::testing
