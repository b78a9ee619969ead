// 33 nodes beat for a simulated hour. The trace of a seed has one hash, whatever compiler or
// sanitizer built it.

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "chaos/sim_world.h"
#include "chaos/toy_heartbeat.h"
#include "tests/testing/matchers.h"

namespace perdure::chaos {
namespace {

using namespace base::literals;
using base::Nanos;

constexpr int kNodeCount = 33;

class HeartbeatRun {
 public:
  explicit HeartbeatRun(uint64_t seed)
      : world_({.seed = seed, .link = {.loss = 0.001, .duplicate = 0.001, .reorder = 0.01}}) {
    for (int i = 0; i < kNodeCount; ++i) options_.nodes.push_back("node" + std::to_string(i));
    for (const std::string& name : options_.nodes) {
      SimHost& host =
          world_.add_host(name, {.clock_offset = Nanos(world_.random().uniform_int(1u << 30))});
      host.boot([this](SimHost& h) {
        auto process = std::make_unique<ToyHeartbeat>(
            h, options_, [this](const ToyHeartbeat::Verdict& v) { on_verdict(v); });
        current_[h.index()] = process.get();
        return process;
      });
    }
  }

  SimWorld& world() { return world_; }
  const HeartbeatOptions& options() const { return options_; }
  const std::vector<std::pair<Nanos, ToyHeartbeat::Verdict>>& verdicts() const { return verdicts_; }
  bool thinks_dead(const std::string& by, const std::string& about) { return dead_[{by, about}]; }
  // Of the nodes as they are now.
  uint64_t beats_received() const {
    uint64_t sum = 0;
    for (const auto& [index, node] : current_) sum += node->beats_received();
    return sum;
  }

 private:
  void on_verdict(const ToyHeartbeat::Verdict& verdict) {
    verdicts_.emplace_back(world_.now(), verdict);
    dead_[{verdict.by, verdict.about}] = verdict.is_dead;
    world_.trace().record(world_.now(), verdict.is_dead ? "dead" : "alive",
                          {world_.host(verdict.by).index(), world_.host(verdict.about).index()});
  }

  HeartbeatOptions options_;
  std::vector<std::pair<Nanos, ToyHeartbeat::Verdict>> verdicts_;
  std::map<std::pair<std::string, std::string>, bool> dead_;
  std::map<uint32_t, ToyHeartbeat*> current_;
  SimWorld world_;
};

// One hour with kills, restarts, a partition and a pause.
uint64_t run_hour(uint64_t seed) {
  const auto start = std::chrono::steady_clock::now();
  HeartbeatRun run(seed);
  SimWorld& world = run.world();
  for (int minute = 2; minute < 58; minute += 2) {
    SimHost& victim = world.host(world.random().uniform_int(kNodeCount));
    const Crash crash = world.random().bernoulli(0.5) ? Crash::kPower : Crash::kProcess;
    world.call_at(minute * 60_s, [&victim, crash] { victim.kill(crash); });
    world.call_at((minute + 1) * 60_s, [&victim] { victim.restart(); });
  }
  world.call_at(600_s, [&world] { world.network().partition({"node1", "node2", "node3"}); });
  world.call_at(660_s, [&world] { world.network().heal_all(); });
  world.run_until(3600_s);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const uint64_t messages = world.network().stats().segments_delivered;
  std::printf(
      "seed %llu: %llu messages, %llu events, %zu verdicts, %.2f s, %.0f messages/s, hash "
      "%016llx\n",
      static_cast<unsigned long long>(seed), static_cast<unsigned long long>(messages),
      static_cast<unsigned long long>(world.event_count()), run.verdicts().size(), seconds,
      static_cast<double>(messages) / seconds,
      static_cast<unsigned long long>(world.trace().hash()));
  EXPECT_GT(messages, 1'000'000u);
  EXPECT_FALSE(run.verdicts().empty());
  return world.trace().hash();
}

// The constant is what makes every build prove that it simulates the same world.
TEST(HeartbeatTest, AnHourHasTheSameTraceInEveryBuild) {
  EXPECT_EQ(run_hour(1), 0x21487af2d906db70u);
}

TEST(HeartbeatTest, ASeedRepeatsAndAnotherDiffers) {
  const auto short_hash = [](uint64_t seed) {
    HeartbeatRun run(seed);
    run.world().run_until(30_s);
    return run.world().trace().hash();
  };
  EXPECT_EQ(short_hash(7), short_hash(7));
  EXPECT_NE(short_hash(7), short_hash(8));
}

TEST(HeartbeatTest, AQuietHourAccusesNobody) {
  HeartbeatRun run(testing::test_seed());
  run.world().run_until(300_s);
  EXPECT_TRUE(run.verdicts().empty());
  EXPECT_GT(run.beats_received(), kNodeCount * (kNodeCount - 1) * 90u);
}

// Dead is said of the victim only, by everybody, in bounded time; and taken back after the restart.
TEST(HeartbeatTest, AKilledNodeIsFoundAndFoundAgain) {
  for (const Crash crash : {Crash::kProcess, Crash::kPower}) {
    HeartbeatRun run(testing::test_seed());
    SimWorld& world = run.world();
    world.call_at(60_s, [&] { world.host("node5").kill(crash); });
    const Nanos bound = 60_s + run.options().dead_after + run.options().period * 2;
    world.run_until(bound);
    EXPECT_EQ(run.verdicts().size(), kNodeCount - 1u);
    for (const auto& [when, verdict] : run.verdicts()) {
      EXPECT_EQ(verdict.about, "node5");
      EXPECT_TRUE(verdict.is_dead);
      EXPECT_GT(when, 60_s + run.options().dead_after - run.options().period);
    }
    world.host("node5").restart();
    world.run_until(bound + run.options().period * 3);
    for (const std::string& name : run.options().nodes) {
      EXPECT_FALSE(run.thinks_dead(name, "node5")) << name;
    }
  }
}

TEST(HeartbeatTest, APartitionIsSeenFromBothSides) {
  HeartbeatRun run(testing::test_seed());
  SimWorld& world = run.world();
  world.call_at(60_s, [&] { world.network().partition({"node0", "node1"}); });
  world.run_until(80_s);
  EXPECT_TRUE(run.thinks_dead("node0", "node32"));
  EXPECT_TRUE(run.thinks_dead("node32", "node0"));
  EXPECT_FALSE(run.thinks_dead("node0", "node1"));
  EXPECT_FALSE(run.thinks_dead("node31", "node32"));
  world.network().heal_all();
  world.run_until(120_s);
  for (const auto& [when, verdict] : run.verdicts()) {
    EXPECT_FALSE(run.thinks_dead(verdict.by, verdict.about)) << verdict.by << " " << verdict.about;
  }
}

TEST(HeartbeatTest, AOneWayCutIsSeenByTheDeafSideOnly) {
  HeartbeatRun run(testing::test_seed());
  SimWorld& world = run.world();
  world.call_at(60_s, [&] { world.network().cut({.from = "node0", .to = "node1"}); });
  world.run_until(75_s);
  EXPECT_TRUE(run.thinks_dead("node1", "node0"));
  EXPECT_FALSE(run.thinks_dead("node0", "node1"));
  EXPECT_FALSE(run.thinks_dead("node2", "node0"));
}

TEST(HeartbeatTest, APausedNodeIsFoundThoughItsConnectionsLive) {
  HeartbeatRun run(testing::test_seed());
  SimWorld& world = run.world();
  world.call_at(60_s, [&] { world.host("node4").pause(); });
  world.run_until(75_s);
  EXPECT_TRUE(run.thinks_dead("node9", "node4"));
  EXPECT_EQ(world.network().stats().connections_broken, 0u);
  world.host("node4").resume();
  world.run_until(80_s);
  EXPECT_FALSE(run.thinks_dead("node9", "node4"));
}

TEST(HeartbeatTest, VerdictsSurviveAPowerLoss) {
  HeartbeatRun run(testing::test_seed());
  SimWorld& world = run.world();
  // The name of the file is made durable by the test: the toy does not.
  ASSERT_OK(world.host("node1").files().sync_dir("/"));
  world.call_at(60_s, [&] { world.host("node5").kill(Crash::kProcess); });
  world.call_at(80_s, [&] { world.host("node1").kill(Crash::kPower); });
  world.call_at(90_s, [&] { world.host("node1").restart(); });
  world.run_until(90_s);
  ASSERT_OK_AND_ASSIGN(const auto text,
                       base::read_file(world.host("node1").files(), "verdicts.log", 1_MiB));
  EXPECT_EQ(base::as_text(text), "node5 dead\n");
}

}  // namespace
}  // namespace perdure::chaos
