#include "base/fault_point.h"

#include <array>
#include <string>
#include <vector>

#include "tests/testing/matchers.h"

namespace perdure::base {
namespace {

using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;

class RecordingHandler final : public FaultHandler {
 public:
  Status at_fault_point(std::string_view name, MutableByteSpan bytes) override {
    names.emplace_back(name);
    if (!bytes.empty()) bytes[0] ^= std::byte{1};
    return name == "fails" ? data_loss("as ordered") : Status::ok();
  }
  std::vector<std::string> names;
};

Status reach() {
  FAULT_POINT("passes");
  RETURN_IF_ERROR(FAULT_STATUS("fails"));
  return Status::ok();
}

TEST(FaultPointTest, DoesNothingUnlessArmed) {
  EXPECT_OK(reach());
  RecordingHandler handler;
  {
    const ScopedFaultHandler scope(handler);
    EXPECT_THAT(reach(), StatusIs(StatusCode::kDataLoss, "as ordered"));
    std::array<std::byte, 1> bytes = {std::byte{6}};
    FAULT_BYTES("flips", bytes);
    EXPECT_EQ(bytes[0], std::byte{7});
  }
  EXPECT_OK(reach());
  EXPECT_THAT(handler.names, ElementsAre("passes", "fails", "flips"));
}

TEST(FaultPointDeathTest, TwoHandlersAreABug) {
  RecordingHandler handler;
  const ScopedFaultHandler scope(handler);
  EXPECT_DEATH(ScopedFaultHandler{handler}, "a fault handler already");
}

}  // namespace
}  // namespace perdure::base
