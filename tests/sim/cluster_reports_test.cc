// What went wrong elsewhere (docs/field-reports.md), played with whole simulated clusters.

#include "base/log.h"
#include "chaos/cluster/sim_cluster.h"
#include "tests/testing/matchers.h"

namespace perdure::chaos::cluster {
namespace {

using namespace base::literals;
using base::NodeId;
using base::WorkerId;

class ClusterReportsTest : public ::testing::Test {
 protected:
  // The logs of a hundred clusters are of no use to anybody.
  void SetUp() override { base::set_all_log_levels(base::LogLevel::kError); }
  void TearDown() override { base::set_all_log_levels(base::LogLevel::kInfo); }

  static bool run_until(SimCluster& cluster, const std::function<bool()>& done,
                        base::Nanos limit = 60_s) {
    return cluster.world().run_until(done, cluster.world().now() + limit);
  }
  static bool run_to_step(SimCluster& cluster, uint64_t step) {
    return run_until(cluster, [&] { return cluster.ledger().steps_known().value() >= step; });
  }
  // Every step once, every sample once, and the bits of a run without faults.
  static void expect_end(SimCluster& cluster) {
    ASSERT_TRUE(cluster.run(cluster.world().now() + 300_s)) << cluster.violation();
    EXPECT_EQ(cluster.violation(), "");
    ASSERT_TRUE(cluster.outcome().has_value());
    EXPECT_OK(*cluster.outcome());
    EXPECT_EQ(cluster.ledger().problem(cluster.options().steps, cluster.job().samples_per_step),
              "");
    EXPECT_EQ(cluster.ledger().final_digest(),
              cluster.job().state_digest_after(cluster.options().steps));
  }
};

TEST_F(ClusterReportsTest, NodesThatStartAtOnceFormOneMembership) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    ClusterOptions options{.seed = seed, .nodes = 8, .pipelines = 4, .stages = 2, .steps = 3};
    options.link.loss = seed % 2 == 0 ? 0.05 : 0.0;
    SimCluster cluster(options);
    cluster.start();
    expect_end(cluster);
    if (options.link.loss == 0.0) {  // a lost beat may cost a lease, and the node comes later
      ASSERT_EQ(cluster.ledger().plans().size(), 1u);
      EXPECT_EQ(cluster.ledger().plans().front().members.size(), 8u);
    }
    if (HasFailure()) return;
  }
}

TEST_F(ClusterReportsTest, ASingleNodeTrains) {
  SimCluster cluster({.seed = 1, .nodes = 1, .pipelines = 1, .stages = 1, .steps = 10});
  cluster.start();
  expect_end(cluster);
  EXPECT_EQ(cluster.ledger().plans().size(), 1u);
}

// A death in the middle of a reduction: the others are released by the change of the epoch, not by
// a timeout of the collective.
TEST_F(ClusterReportsTest, SurvivorsLeaveTheCollectiveWithinALease) {
  for (const bool is_node : {false, true}) {
    SimCluster cluster({.seed = 3, .nodes = 4});
    cluster.start();
    ASSERT_TRUE(run_to_step(cluster, 5));
    const base::Nanos struck = cluster.world().now();
    const size_t plans = cluster.ledger().plans().size();
    if (is_node) {
      cluster.kill_node(NodeId(3), Crash::kPower);  // nobody is told
    } else {
      cluster.kill_worker(WorkerId(3));
    }
    ASSERT_TRUE(run_until(cluster, [&] { return cluster.ledger().plans().size() > plans; }));
    EXPECT_LT(cluster.world().now() - struck, is_node ? 2500_ms : 1000_ms);
    if (is_node) cluster.restart_node(NodeId(3));
    expect_end(cluster);
  }
}

TEST_F(ClusterReportsTest, HalvesThatAreCutOffDoNotBothTrain) {
  for (const uint32_t nodes : {4u, 5u}) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(std::to_string(nodes) + " nodes, seed " + std::to_string(seed));
      SimCluster cluster({.seed = seed, .nodes = nodes});
      cluster.start();
      ASSERT_TRUE(run_to_step(cluster, 5));
      cluster.cut_off({NodeId(0), NodeId(1)});
      (void)run_until(
          cluster, [&] { return cluster.outcome().has_value(); }, 1_s);
      cluster.heal();
      expect_end(cluster);
      if (HasFailure()) return;
    }
  }
}

TEST_F(ClusterReportsTest, AMassFailureIsOneEvent) {
  SimCluster cluster({.seed = 5, .nodes = 32, .pipelines = 16, .stages = 2, .micro_batches = 32});
  cluster.start();
  ASSERT_TRUE(run_to_step(cluster, 3));
  const size_t plans = cluster.ledger().plans().size();
  std::set<WorkerId> lost;
  for (uint32_t n = 0; n < 32 && lost.size() < 28; ++n) {
    std::set<WorkerId> more = lost;
    more.insert(WorkerId(n));
    if (cluster.survives_without(more)) lost = more;
  }
  ASSERT_EQ(lost.size(), 28u);
  const base::Nanos struck = cluster.world().now();
  for (const WorkerId worker : lost) cluster.kill_node(cluster.node_of(worker), Crash::kProcess);
  ASSERT_TRUE(run_until(cluster, [&] { return cluster.ledger().plans().size() > plans; }));
  EXPECT_LT(cluster.world().now() - struck, 3_s);
  EXPECT_EQ(cluster.ledger().plans().size(), plans + 1);
  EXPECT_EQ(cluster.ledger().plans().back().members.size(), 4u);
  expect_end(cluster);
}

TEST_F(ClusterReportsTest, ACoordinatorThatDiesDoesNotStopTheTraining) {
  SimCluster cluster({.seed = 6, .nodes = 4});
  cluster.start();
  ASSERT_TRUE(run_to_step(cluster, 3));
  cluster.kill_coordinator();
  cluster.world().run_until(cluster.world().now() + 500_ms);
  cluster.restart_coordinator();
  expect_end(cluster);
  EXPECT_EQ(cluster.ledger().plans().size(), 1u);  // nobody stopped
}

// The same process is stopped for longer than its lease, and comes back as if nothing were.
TEST_F(ClusterReportsTest, AStoppedNodeThatComesBackCannotDisturbItsSuccessors) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    SimCluster cluster({.seed = seed, .nodes = 5});
    cluster.start();
    ASSERT_TRUE(run_to_step(cluster, 4));
    cluster.pause_node(NodeId(1));
    cluster.world().run_until(cluster.world().now() + 3_s);
    cluster.resume_node(NodeId(1));
    expect_end(cluster);
    if (HasFailure()) return;
  }
}

// Kills every 15 virtual steps or so: worker after worker, the job goes on.
TEST_F(ClusterReportsTest, WorkersThatDieOneAfterTheOther) {
  SimCluster cluster({.seed = 8, .nodes = 6, .steps = 100});
  cluster.start();
  for (uint64_t step = 10; step < 100; step += 10) {
    ASSERT_TRUE(run_to_step(cluster, step));
    const WorkerId victim(static_cast<uint32_t>(step / 10 % 6));
    if (cluster.is_worker_up(victim) && cluster.survives_without({victim}))
      cluster.kill_worker(victim);
  }
  expect_end(cluster);
  EXPECT_GE(cluster.ledger().plans().size(), 5u);
}

}  // namespace
}  // namespace perdure::chaos::cluster
