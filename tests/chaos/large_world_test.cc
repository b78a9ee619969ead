// A world of thousands of hosts: what it costs is printed.

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>

#include "chaos/sim_world.h"
#include "tests/testing/matchers.h"

namespace perdure::chaos {
namespace {

using namespace base::literals;
using base::Status;
using base::Task;
using ::perdure::testing::StatusIs;

constexpr int kHosts = 2049;

double resident_mb() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * 4096 / 1e6;
}

std::string name_of(int i) { return "node" + std::to_string(i); }

Task<Status> connect(SimHost& host, std::string to) {
  const base::Address address(std::move(to), 5);
  const base::Nanos deadline = host.clock().now() + 10_s;
  const auto channel = co_await host.network().connect(address, deadline);
  co_return channel.status();
}

TEST(LargeWorldTest, IsQuickToBuildAndSmall) {
  const auto now = [] {
    return std::chrono::steady_clock::now();  // tidy: allow banned-call because it is only printed
  };
  const double before_mb = resident_mb();
  const auto start = now();
  SimWorld world({.seed = testing::test_seed()});
  for (int i = 0; i < kHosts; ++i) world.add_host(name_of(i));
  world.run_until(1_s);
  const double ms = std::chrono::duration<double, std::milli>(now() - start).count();
  std::printf("%d hosts: %.1f ms, %.1f MB\n", kHosts, ms, resident_mb() - before_mb);

  // Cuts and links of single pairs, among so many.
  SimNetwork& network = world.network();
  ASSERT_OK_AND_ASSIGN(const auto listener, world.host("node7").network().listen({"", 5}));
  EXPECT_OK(world.run(world.host("node2048"), connect(world.host("node2048"), "node7")));
  network.partition({"node7"});
  EXPECT_THAT(world.run(world.host("node2048"), connect(world.host("node2048"), "node7")),
              StatusIs(base::StatusCode::kDeadlineExceeded));
  network.heal_all();
  network.set_link({.from = "node2048", .to = "node7"}, {.delay = 3_s});
  const base::Nanos asked = world.now();
  EXPECT_OK(world.run(world.host("node2048"), connect(world.host("node2048"), "node7")));
  EXPECT_GE(world.now() - asked, 3_s);
  EXPECT_OK(world.run(world.host("node1"), connect(world.host("node1"), "node7")));
  network.cut({.from = "node1", .to = "node7"});
  network.heal({.from = "node1", .to = "node7"});
  EXPECT_OK(world.run(world.host("node1"), connect(world.host("node1"), "node7")));
}

}  // namespace
}  // namespace perdure::chaos
