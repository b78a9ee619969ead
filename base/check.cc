#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace perdure::base {

CheckFailure::CheckFailure(const char* file, int line, const char* expression) {
  stream_ << file << ":" << line << ": check failed: " << expression << " ";
}

CheckFailure::~CheckFailure() {
  const std::string text = stream_.str();
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(nullptr);
  std::abort();
}

}  // namespace perdure::base
