// A whole job in the simulated world.

#include <cstdio>

#include "base/log.h"
#include "chaos/cluster/fault_script.h"
#include "tests/testing/matchers.h"

namespace perdure::chaos::cluster {
namespace {

std::string text_of(const SeedResult& result) {
  std::string text = result.problem + "\n";
  for (const std::string& line : result.story) text += "  " + line + "\n";
  return text;
}

TEST(SimClusterTest, AnUndisturbedJobEndsAfterOneEpoch) {
  SimCluster cluster({.seed = 1});
  cluster.start();
  ASSERT_TRUE(cluster.run(std::chrono::seconds(60))) << cluster.violation();
  EXPECT_THAT(*cluster.outcome(), testing::IsOk());
  EXPECT_EQ(cluster.ledger().problem(20, 8), "");
  EXPECT_EQ(cluster.ledger().plans().size(), 1u);
  EXPECT_EQ(cluster.ledger().final_digest(), cluster.job().state_digest_after(20));
}

TEST(SimClusterTest, SeedsWithFaultsEndLikeUndisturbedRuns) {
  std::set<std::string> goals;
  uint64_t events = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeedOptions options;
    options.cluster.seed = seed;
    options.cluster.nodes = 6;
    options.cluster.pipelines = 3;
    options.cluster.stages = 2;
    const SeedResult result = run_seed(options);
    events += result.events;
    if (std::getenv("VERBOSE")) {
      std::printf("seed %lu: %lu events, %.1f s, %u strikes, %s\n", seed, result.events,
                  base::to_seconds(result.virtual_time), result.strikes, result.problem.c_str());
      std::fflush(stdout);
    }
    goals.insert(result.goals.begin(), result.goals.end());
    ASSERT_EQ(result.problem, "") << "seed " << seed << ": " << text_of(result);
  }
  for (const std::string& goal : goals) std::printf("reached: %s\n", goal.c_str());
  std::printf("%llu events\n", static_cast<unsigned long long>(events));
}

}  // namespace
}  // namespace perdure::chaos::cluster
