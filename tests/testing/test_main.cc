// main of every test binary: prints the seed first, accepts --seed=N.

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/testing/matchers.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) {
      perdure::testing::set_test_seed(std::strtoull(argv[i] + 7, nullptr, 10));
    }
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(perdure::testing::test_seed()));
  return RUN_ALL_TESTS();
}
