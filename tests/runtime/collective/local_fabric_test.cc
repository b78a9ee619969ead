#include "runtime/collective/local_fabric.h"

#include "tests/runtime/collective/fabric_conformance.h"

namespace perdure::runtime::collective {
namespace {

FabricSet make_local(uint32_t ranks) {
  FabricSet set;
  auto hub = std::make_shared<LocalSwitch>(ranks);
  for (uint32_t r = 0; r < ranks; ++r) set.fabrics.push_back(hub->make_fabric(base::Rank(r)));
  set.owner = hub;
  return set;
}

INSTANTIATE_TEST_SUITE_P(Local, FabricConformanceTest,
                         ::testing::Values(FabricKind{"local", make_local}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace perdure::runtime::collective
