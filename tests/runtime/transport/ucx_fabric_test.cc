#include "runtime/transport/ucx_fabric.h"

#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "tests/runtime/collective/fabric_conformance.h"

namespace perdure::runtime::collective {
namespace {

using ::perdure::testing::StatusIs;
using transport::make_ucx_fabric;
using transport::UcxOptions;
using transport::UcxTransport;

FabricSet make_ucx(uint32_t ranks, UcxTransport kind) {
  std::vector<std::unique_ptr<MeshFabric>> fabrics;
  std::vector<std::vector<std::byte>> addresses;
  for (uint32_t r = 0; r < ranks; ++r) {
    auto fabric = make_ucx_fabric(
        {.rank = base::Rank(r), .ranks = ranks, .epoch = base::Epoch(3), .transport = kind});
    CHECK(fabric.is_ok()) << fabric.status();
    addresses.push_back((*fabric)->address());
    fabrics.push_back(std::move(fabric).value());
  }
  std::vector<std::thread> threads;
  for (auto& fabric : fabrics) {
    threads.emplace_back([&] {
      const base::Status connected = fabric->connect(addresses, Timeout(20000));
      CHECK(connected.is_ok()) << connected;
    });
  }
  for (auto& thread : threads) thread.join();
  FabricSet set;
  for (auto& fabric : fabrics) set.fabrics.push_back(std::move(fabric));
  return set;
}

INSTANTIATE_TEST_SUITE_P(
    Ucx, FabricConformanceTest,
    ::testing::Values(FabricKind{"tcp", [](uint32_t n) { return make_ucx(n, UcxTransport::kTcp); }},
                      FabricKind{"shm",
                                 [](uint32_t n) { return make_ucx(n, UcxTransport::kShm); }}),
    [](const auto& test) { return test.param.name; });

TEST(UcxFabricTest, ADestroyedPeerEndsWaitsAsUnavailable) {
  FabricSet set = make_ucx(2, UcxTransport::kTcp);
  std::vector<std::byte> buffer(1 << 20);
  Fabric& survivor = *set.fabrics[0];
  const Ticket unmatched = survivor.post_receive(base::Rank(1), {Channel::kTest, 0, 0}, buffer);
  set.fabrics[1].reset();
  EXPECT_THAT(survivor.wait(unmatched, Timeout(20000)), StatusIs(base::StatusCode::kUnavailable));
  const Ticket later = survivor.post_receive(base::Rank(1), {Channel::kTest, 0, 1}, buffer);
  EXPECT_THAT(survivor.wait(later, Timeout(20000)), StatusIs(base::StatusCode::kUnavailable));
}

TEST(UcxFabricTest, ARankThatAbortedIsGoneForTheOthersBeforeItIsDestroyed) {
  FabricSet set = make_ucx(2, UcxTransport::kTcp);
  std::vector<std::byte> buffer(1 << 20);
  Fabric& survivor = *set.fabrics[0];
  const Ticket unmatched = survivor.post_receive(base::Rank(1), {Channel::kTest, 0, 0}, buffer);
  set.fabrics[1]->abort(base::aborted("leaving"));
  EXPECT_THAT(survivor.wait(unmatched, Timeout(20000)), StatusIs(base::StatusCode::kUnavailable));
  const std::vector<std::vector<std::byte>> addresses(2);
  auto late = make_ucx_fabric({.rank = base::Rank(0), .ranks = 2});
  ASSERT_OK(late);
  (*late)->abort(base::aborted("leaving"));
  const Ticket ticket = (*late)->post_send(base::Rank(1), {Channel::kTest, 0, 0}, buffer);
  EXPECT_THAT((*late)->wait(ticket, Timeout(20000)), StatusIs(base::StatusCode::kAborted));
  EXPECT_FALSE((*late)->connect(addresses, Timeout(20000)).is_ok());
}

TEST(UcxFabricTest, AMessageOfAnotherEpochMatchesNothing) {
  // Both ends agree on addresses but not on the epoch: the greeting must not get through.
  std::vector<std::unique_ptr<MeshFabric>> fabrics;
  std::vector<std::vector<std::byte>> addresses;
  for (uint32_t r = 0; r < 2; ++r) {
    auto fabric = make_ucx_fabric({.rank = base::Rank(r), .ranks = 2, .epoch = base::Epoch(r + 1)});
    ASSERT_OK(fabric);
    addresses.push_back((*fabric)->address());
    fabrics.push_back(std::move(fabric).value());
  }
  EXPECT_THAT(fabrics[0]->connect(addresses, Timeout(100)),
              StatusIs(base::StatusCode::kDeadlineExceeded));
}

TEST(UcxFabricTest, CloseEndsOpenOperationsAndMayBeCalledTwice) {
  FabricSet set = make_ucx(2, UcxTransport::kTcp);
  std::vector<std::byte> buffer(64);
  auto& fabric = dynamic_cast<MeshFabric&>(*set.fabrics[0]);
  const Ticket ticket = fabric.post_receive(base::Rank(1), {Channel::kTest, 0, 0}, buffer);
  fabric.close();
  fabric.close();
  EXPECT_THAT(fabric.wait(ticket, Timeout(1000)), StatusIs(base::StatusCode::kCancelled));
}

TEST(UcxFabricTest, AFabricFromAPortMadeAheadIsLikeAnyOther) {
  transport::UcxFabricSource ahead;
  const transport::UcxPortOptions port;
  ahead.get_ready(port);
  ahead.get_ready(port);
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {  // the last without a spare
    auto first = ahead.make({.rank = base::Rank(0), .ranks = 2, .epoch = base::Epoch(epoch)});
    auto second = make_ucx_fabric({.rank = base::Rank(1), .ranks = 2, .epoch = base::Epoch(epoch)});
    ASSERT_OK(first);
    ASSERT_OK(second);
    const std::vector<std::vector<std::byte>> addresses = {(*first)->address(),
                                                           (*second)->address()};
    std::thread other([&] { EXPECT_OK((*second)->connect(addresses, Timeout(20000))); });
    EXPECT_OK((*first)->connect(addresses, Timeout(20000)));
    other.join();
    if (epoch == 1) ahead.get_ready(port);
  }
  ahead.get_ready({.network_device = "nosuchdevice"});
  EXPECT_FALSE(
      ahead.make({.rank = base::Rank(0), .ranks = 1, .network_device = "nosuchdevice"}).is_ok());
  ahead.get_ready({.transport = UcxTransport::kShm});
  EXPECT_OK(ahead.make({.rank = base::Rank(0), .ranks = 1})) << "a spare of another kind stays";
}

TEST(UcxFabricTest, AWrongAddressIsRefused) {
  auto fabric =
      make_ucx_fabric({.rank = base::Rank(0), .ranks = 2, .network_device = "nosuchdevice"});
  EXPECT_FALSE(fabric.is_ok());
}

}  // namespace
}  // namespace perdure::runtime::collective
