#include "runtime/membership/member_table.h"

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::membership {
namespace {

using namespace base::literals;
using base::Incarnation;
using base::Nanos;
using base::NodeId;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

constexpr LeaseOptions kOptions{.lease = 1000_ms, .beat = 250_ms, .tick_max = 500_ms};

// Ticks as an owner does, so that the table never thinks that it was stopped.
std::vector<NodeLoss> tick_until(MemberTable& table, Nanos from, Nanos to) {
  std::vector<NodeLoss> all;
  for (Nanos t = from; t <= to; t += 100_ms) {
    for (NodeLoss& loss : table.tick(t)) all.push_back(std::move(loss));
  }
  return all;
}

TEST(MemberTableTest, AFirstJoinGivesTheFirstIncarnation) {
  MemberTable table(kOptions);
  EXPECT_EQ(table.next_deadline(), base::kNoDeadline);
  ASSERT_OK_AND_ASSIGN(const Incarnation first, table.join({NodeId(3), Incarnation(0)}, 5_s));
  EXPECT_EQ(first, Incarnation(1));
  EXPECT_TRUE(table.is_alive(NodeId(3), first));
  EXPECT_FALSE(table.is_alive(NodeId(3), Incarnation(2)));
  EXPECT_FALSE(table.is_alive(NodeId(4), first));
  EXPECT_EQ(table.alive_count(), 1u);
  EXPECT_EQ(table.nodes().at(NodeId(3)).lease_end, 6_s);
}

TEST(MemberTableTest, BeatsRenewTheLeaseAndSilenceEndsIt) {
  MemberTable table(kOptions);
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 0_s));
  ASSERT_OK(table.join({NodeId(1), Incarnation(0)}, 0_s));
  for (Nanos t = 250_ms; t <= 2_s; t += 250_ms) {
    if (t <= 1_s) {
      ASSERT_OK(table.beat(NodeId(1), Incarnation(1), t));
    }
    ASSERT_OK(table.beat(NodeId(0), Incarnation(1), t));
    const auto losses = table.tick(t);
    if (t < 2_s) {
      EXPECT_TRUE(losses.empty()) << t.count();
    } else {
      ASSERT_EQ(losses.size(), 1u);
      EXPECT_EQ(losses[0].node, NodeId(1));
      EXPECT_EQ(losses[0].incarnation, Incarnation(1));
      EXPECT_EQ(losses[0].why, "no beat for 1000 ms");
    }
  }
  EXPECT_TRUE(table.tick(2_s).empty()) << "a loss is told once";
  EXPECT_THAT(table.beat(NodeId(1), Incarnation(1), 2_s),
              StatusIs(StatusCode::kAborted, HasSubstr("join again")));
}

TEST(MemberTableTest, LossesAreAscending) {
  MemberTable table(kOptions);
  for (const uint32_t n : {7u, 2u, 5u}) ASSERT_OK(table.join({NodeId(n), Incarnation(0)}, 0_s));
  const auto losses = tick_until(table, 0_s, 1_s);
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_EQ(losses[0].node, NodeId(2));
  EXPECT_EQ(losses[2].node, NodeId(7));
  EXPECT_EQ(table.alive_count(), 0u);
  EXPECT_EQ(table.next_deadline(), base::kNoDeadline);
}

TEST(MemberTableTest, TheSameProcessMayComeBack) {
  MemberTable table(kOptions);
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 0_s));
  EXPECT_TRUE(table.lose(NodeId(0), Incarnation(1)));
  EXPECT_FALSE(table.lose(NodeId(0), Incarnation(1))) << "it is lost already";
  ASSERT_OK_AND_ASSIGN(const Incarnation again, table.join({NodeId(0), Incarnation(1)}, 3_s));
  EXPECT_EQ(again, Incarnation(1));
  EXPECT_TRUE(table.is_alive(NodeId(0), Incarnation(1)));
}

TEST(MemberTableTest, ANewProcessReplacesTheOldOne) {
  MemberTable table(kOptions);
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 0_s));
  ASSERT_OK_AND_ASSIGN(const Incarnation second, table.join({NodeId(0), Incarnation(0)}, 100_ms));
  EXPECT_EQ(second, Incarnation(2));
  EXPECT_THAT(table.join({NodeId(0), Incarnation(1)}, 200_ms),
              StatusIs(StatusCode::kAborted, HasSubstr("replaced by process 2")));
  EXPECT_THAT(table.beat(NodeId(0), Incarnation(1), 200_ms), StatusIs(StatusCode::kAborted));
  EXPECT_FALSE(table.lose(NodeId(0), Incarnation(1))) << "the old connection says nothing now";
  EXPECT_TRUE(table.is_alive(NodeId(0), second));
}

TEST(MemberTableTest, ABeatOfAnUnknownNodeIsRefused) {
  MemberTable table(kOptions);
  EXPECT_THAT(table.beat(NodeId(9), Incarnation(1), 0_s), StatusIs(StatusCode::kAborted));
  EXPECT_FALSE(table.lose(NodeId(9), Incarnation(1)));
}

TEST(MemberTableTest, RestoredIncarnationsAreNeverGivenAgain) {
  MemberTable table(kOptions);
  table.restore(NodeId(0), Incarnation(7));
  table.restore(NodeId(0), Incarnation(5));
  EXPECT_FALSE(table.is_alive(NodeId(0), Incarnation(7)));
  EXPECT_THAT(table.beat(NodeId(0), Incarnation(7), 0_s), StatusIs(StatusCode::kAborted));
  EXPECT_THAT(table.join({NodeId(0), Incarnation(6)}, 0_s), StatusIs(StatusCode::kAborted));
  ASSERT_OK_AND_ASSIGN(const Incarnation same, table.join({NodeId(0), Incarnation(7)}, 0_s));
  EXPECT_EQ(same, Incarnation(7));
  ASSERT_OK_AND_ASSIGN(const Incarnation fresh, table.join({NodeId(0), Incarnation(0)}, 1_s));
  EXPECT_EQ(fresh, Incarnation(8));
}

TEST(MemberTableTest, AStallOfOurOwnAccusesNobody) {
  MemberTable table(kOptions);
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 0_s));
  ASSERT_OK(table.join({NodeId(1), Incarnation(0)}, 0_s));
  EXPECT_TRUE(table.tick(200_ms).empty());
  EXPECT_TRUE(table.tick(10_s).empty()) << "we were stopped for 9.8 s";
  EXPECT_EQ(table.nodes().at(NodeId(0)).lease_end, 10800_ms) << "0.8 s were left";
  ASSERT_OK(table.beat(NodeId(0), Incarnation(1), 10100_ms));
  const auto losses = tick_until(table, 10100_ms, 10900_ms);
  ASSERT_EQ(losses.size(), 1u) << "who stays silent is lost all the same";
  EXPECT_EQ(losses[0].node, NodeId(1));
}

TEST(MemberTableTest, TimeGivenBackNeverMakesALeaseLongerThanALease) {
  MemberTable table(kOptions);
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 0_s));
  EXPECT_TRUE(table.tick(0_s).empty());
  ASSERT_OK(table.beat(NodeId(0), Incarnation(1), 5_s));
  EXPECT_TRUE(table.tick(5_s).empty());
  EXPECT_EQ(table.nodes().at(NodeId(0)).lease_end, 6_s);
}

TEST(MemberTableTest, TimeWithoutMembersIsNoStall) {
  MemberTable table(kOptions);
  EXPECT_TRUE(table.tick(0_s).empty());
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 100_s));
  EXPECT_EQ(table.next_deadline(), 100250_ms);
  const auto losses = tick_until(table, 100_s, 101_s);
  EXPECT_EQ(losses.size(), 1u);
}

TEST(MemberTableTest, ALateOldBeatDoesNotShortenALease) {
  MemberTable table(kOptions);
  ASSERT_OK(table.join({NodeId(0), Incarnation(0)}, 5_s));
  ASSERT_OK(table.beat(NodeId(0), Incarnation(1), 4_s));
  EXPECT_EQ(table.nodes().at(NodeId(0)).lease_end, 6_s);
}

// Whoever ticks at next_deadline() finds each loss within a tick of its lease's end, and never
// takes its own pace for a stall.
TEST(MemberTableTest, TheDeadlinesAreEnough) {
  base::SeededRandom random(::perdure::testing::test_seed());
  for (int round = 0; round < 200; ++round) {
    MemberTable table(kOptions);
    Nanos now{0};
    std::map<NodeId, Nanos> heard;
    for (uint32_t n = 0; n < 5; ++n) {
      ASSERT_OK(table.join({NodeId(n), Incarnation(0)}, now));
      heard[NodeId(n)] = now;
    }
    while (table.alive_count() > 0) {
      const Nanos next = table.next_deadline();
      ASSERT_GT(next, now);
      now = next;
      for (const NodeLoss& loss : table.tick(now)) {
        EXPECT_EQ(now, heard[loss.node] + kOptions.lease);
      }
      for (auto& [node, when] : heard) {
        if (random.bernoulli(0.5) && table.beat(node, Incarnation(1), now).is_ok()) when = now;
      }
      if (now > 60_s) break;
    }
  }
}

TEST(MemberTableTest, ProcessThatAsksAgainKeepsItsIncarnation) {
  MemberTable table(LeaseOptions{});
  const Joiner process{.node = NodeId(0), .born = 100};
  ASSERT_OK_AND_ASSIGN(const Incarnation first, table.join(process, 0_s));
  ASSERT_OK_AND_ASSIGN(const Incarnation again, table.join(process, 1_s));
  EXPECT_EQ(first, again);
}

TEST(MemberTableTest, LateJoinOfAnOlderProcessIsRefusedWhileTheNewerLives) {
  MemberTable table(LeaseOptions{});
  ASSERT_OK_AND_ASSIGN(const Incarnation newer, table.join({.node = NodeId(0), .born = 200}, 0_s));
  EXPECT_THAT(table.join({.node = NodeId(0), .born = 100}, 1_s), StatusIs(StatusCode::kAborted));
  EXPECT_TRUE(table.is_alive(NodeId(0), newer));
  // A clock that was set back must not keep the node out for ever.
  ASSERT_TRUE(table.lose(NodeId(0), newer));
  EXPECT_THAT(table.join({.node = NodeId(0), .born = 100}, 2_s), StatusIs(StatusCode::kAborted));
  ASSERT_OK_AND_ASSIGN(const Incarnation next, table.join({.node = NodeId(0), .born = 100}, 61_s));
  EXPECT_GT(next, newer);
}

TEST(MemberTableTest, RestoredProcessIsKnownAgain) {
  MemberTable table(LeaseOptions{});
  table.restore(NodeId(0), Incarnation(3), 100);
  ASSERT_OK_AND_ASSIGN(const Incarnation same, table.join({.node = NodeId(0), .born = 100}, 0_s));
  EXPECT_EQ(same, Incarnation(3));
}

}  // namespace
}  // namespace perdure::runtime::membership
