#include "base/network.h"

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;

TEST(AddressTest, ParsesWhatItPrints) {
  ASSERT_OK_AND_ASSIGN(const Address address, Address::parse("node-3.cluster:7001"));
  EXPECT_EQ(address, (Address("node-3.cluster", 7001)));
  EXPECT_EQ(address.to_string(), "node-3.cluster:7001");
  EXPECT_OK(Address::parse(":0"));
}

TEST(AddressTest, RefusesWhatIsNoAddress) {
  for (const char* text : {"", "node", "node:", "node:x", "node:65536", "node:1 ", "node:-1"}) {
    EXPECT_THAT(Address::parse(text), StatusIs(StatusCode::kInvalidArgument)) << text;
  }
}

}  // namespace
}  // namespace perdure::base
