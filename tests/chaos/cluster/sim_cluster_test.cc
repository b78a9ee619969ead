// A whole job in the simulated world, from its seed.

#include <cstdio>

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
  uint64_t strikes = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeedOptions options;
    options.cluster.seed = seed;
    options.cluster.nodes = 6;
    options.cluster.pipelines = 3;
    options.cluster.stages = 2;
    const SeedResult result = run_seed(options);
    strikes += result.strikes;
    goals.insert(result.goals.begin(), result.goals.end());
    ASSERT_EQ(result.problem, "") << "seed " << seed << ": " << text_of(result);
  }
  std::printf("%llu strikes; goals reached: %zu\n", static_cast<unsigned long long>(strikes),
              goals.size());
  for (const char* goal : {"the job grew", "the job shrank", "unequal pipelines",
                           "a worker is lost while active", "split network while active"})
    EXPECT_TRUE(goals.contains(goal)) << goal;
}

// All holders of a layer may be killed, as long as their nodes keep what they had.
TEST(SimClusterTest, SeedsWithSnapshotsSurviveTheLossOfAllHolders) {
  uint64_t restored = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SeedOptions options;
    options.cluster.seed = seed;
    options.cluster.snapshots = true;
    options.cluster.pipelines = 1;  // nobody holds what another does
    options.cluster.stages = 4;
    options.tell = true;
    const SeedResult result = run_seed(options);
    ASSERT_EQ(result.problem, "") << "seed " << seed << ": " << text_of(result);
    for (const std::string& line : result.story)
      restored += line.find("epoch.restore") != std::string::npos ? 1 : 0;
  }
  std::printf("%llu times state was brought back\n", static_cast<unsigned long long>(restored));
  EXPECT_GT(restored, 20u);
}

TEST(SimClusterTest, BothHoldersOfAStageDieAndNoStepIsLost) {
  SimCluster cluster({.seed = 3, .snapshots = true});
  cluster.start();
  bool is_done = false;
  cluster.on_point([&](std::string_view name) {
    if (name != "step.reduce" || base::fault_time.step.load() != 8 || is_done) return;
    is_done = true;
    cluster.kill_worker(base::WorkerId(1));
    cluster.kill_worker(base::WorkerId(3));
  });
  ASSERT_TRUE(cluster.run(std::chrono::seconds(120))) << cluster.violation();
  EXPECT_THAT(*cluster.outcome(), testing::IsOk());
  EXPECT_EQ(cluster.ledger().problem(20, 8), "");
  EXPECT_EQ(cluster.ledger().final_digest(), cluster.job().state_digest_after(20));
}

// What a node keeps has changed: the step before, which it keeps too, is taken.
TEST(SimClusterTest, WhatProvesBadIsNotUsed) {
  SimCluster cluster({.seed = 3, .snapshots = true});
  cluster.start();
  bool is_done = false;
  cluster.on_point([&](std::string_view name) {
    if (name != "step.reduce" || base::fault_time.step.load() != 8 || is_done) return;
    is_done = true;
    for (const uint32_t worker : {1u, 3u}) {
      cluster.memory_of(base::WorkerId(worker)).spoil(base::Step(7));
      cluster.kill_worker(base::WorkerId(worker));
    }
  });
  ASSERT_TRUE(cluster.run(std::chrono::seconds(120))) << cluster.violation();
  EXPECT_THAT(*cluster.outcome(), testing::IsOk());
  EXPECT_EQ(cluster.ledger().final_digest(), cluster.job().state_digest_after(20));
  ASSERT_EQ(cluster.ledger().plans().size(), 2u);
  EXPECT_EQ(cluster.ledger().plans().back().resume.step, base::Step(6));
}

TEST(SimClusterTest, ASeedGivesTheSameRunAgain) {
  SeedOptions options;
  options.cluster.seed = 57;
  options.tell = true;
  const SeedResult first = run_seed(options);
  const SeedResult again = run_seed(options);
  EXPECT_EQ(first.events, again.events);
  EXPECT_EQ(first.story, again.story);
}

// Seeds that have found something.
struct FoundBy {
  const char* what;
  uint64_t seed;
  uint32_t nodes;
  uint32_t workers_per_node;
  uint32_t pipelines;
  uint32_t stages;
  uint32_t strikes;
};

class FoundBySeedTest : public ::testing::TestWithParam<FoundBy> {};

TEST_P(FoundBySeedTest, EndsLikeAnUndisturbedRun) {
  const FoundBy& found = GetParam();
  SeedOptions options;
  options.cluster.seed = found.seed;
  options.cluster.nodes = found.nodes;
  options.cluster.workers_per_node = found.workers_per_node;
  options.cluster.pipelines = found.pipelines;
  options.cluster.stages = found.stages;
  options.cluster.micro_batches = 2 * found.pipelines;
  options.strikes_max = found.strikes;
  const SeedResult result = run_seed(options);
  EXPECT_EQ(result.problem, "") << found.what << ": " << text_of(result);
}

INSTANTIATE_TEST_SUITE_P(
    Seeds, FoundBySeedTest,
    ::testing::Values(
        FoundBy{"a new rank 0 knew nothing of the last step", 38, 6, 1, 3, 2, 6},
        FoundBy{"the job finished while the coordinator was away", 42, 6, 1, 3, 2, 6},
        FoundBy{"an agent fenced a worker between prepare and load", 72, 6, 1, 3, 2, 6},
        FoundBy{"a join that came late replaced the process that was there", 1387, 8, 2, 4, 4, 10},
        FoundBy{"a late join replaced a process that was out of reach", 52911, 4, 1, 2, 2, 20},
        FoundBy{"a state told while rejoining began a change of two workers", 20088, 8, 2, 4, 4,
                12},
        FoundBy{"an engine that stopped while rejoining began a change", 21505, 8, 2, 4, 4, 12},
        FoundBy{"all that had made the last step were gone when asked", 21642, 8, 2, 4, 4, 12},
        FoundBy{"the end came before the reports", 6235, 4, 1, 2, 2, 20},
        FoundBy{"all workers were lost before the job began", 2063, 4, 1, 2, 2, 20},
        FoundBy{"all agents came back, but not within two seconds", 5221, 8, 2, 4, 4, 16}));

}  // namespace
}  // namespace perdure::chaos::cluster
