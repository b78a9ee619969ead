#pragma once
// One conformance test for every Fabric: ranks as threads, each implementation instantiates it with
// a maker.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/collective/fabric.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::collective {

// Keeps alive what the fabrics stand on.
struct FabricSet {
  std::shared_ptr<void> owner;
  std::vector<std::unique_ptr<Fabric>> fabrics;  // one per rank
};

struct FabricKind {
  std::string name;
  std::function<FabricSet(uint32_t ranks)> make;
};

class FabricConformanceTest : public ::testing::TestWithParam<FabricKind> {
 protected:
  // Runs body(fabric) for each rank in a thread of its own and joins.
  static void run_ranks(FabricSet& set, const std::function<void(Fabric&)>& body);
};

}  // namespace perdure::runtime::collective
