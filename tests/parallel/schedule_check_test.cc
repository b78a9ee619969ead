// Each rule of the checker: a legal schedule, broken in just that rule.
#include "parallel/schedule_check.h"

#include <algorithm>
#include <functional>

#include "parallel/rank_topology.h"
#include "parallel/schedule_makers.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::MicroBatch;
using base::Rank;
using base::StatusCode;
using ::testing::AllOf;
using testing::grid;
using ::testing::HasSubstr;
using testing::small_model;
using testing::StatusIs;
using testing::unequal_layout;

using List = std::vector<Instruction>;

List::iterator find(List& list, Action action, uint32_t micro_batch) {
  const auto it = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.action == action && i.micro_batch == MicroBatch(micro_batch);
  });
  CHECK(it != list.end());
  return it;
}

void erase(List& list, Action action, uint32_t m = 0) { list.erase(find(list, action, m)); }

// Moves one instruction in front of another.
void move_before(List& list, List::iterator what, List::iterator where) {
  if (what < where) {
    std::rotate(what, what + 1, where);
  } else {
    std::rotate(where, what, what + 1);
  }
  (void)list;
}

class ScheduleCheckTest : public ::testing::Test {
 protected:
  // 2 pipelines of 3 stages, 4 micro-batches each. Rank 1 is in the middle of the first.
  ScheduleCheckTest()
      : model_(small_model()),
        layout_(grid(model_, {.pipelines = 2, .stages = 3, .micro_batches = 8})),
        schedule_(make_schedule_1f1b(model_, layout_)) {}

  List& list(uint32_t rank) { return schedule_.stages[rank].instructions; }
  base::Status check(SendModel sends = SendModel::kRendezvous) const {
    return check_schedule(model_, layout_, schedule_, sends);
  }
  void expect_refused(const std::string& where, const std::string& reason) const {
    EXPECT_THAT(check(),
                StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr(where), HasSubstr(reason))));
  }
  // Splits B of a micro-batch into I and W, W right after I.
  void split(uint32_t rank, uint32_t m) {
    const auto b = find(list(rank), Action::kBackward, m);
    b->action = Action::kBackwardInput;
    Instruction w = *b;
    w.action = Action::kBackwardWeight;
    list(rank).insert(b + 1, w);
  }

  ModelSpec model_;
  Layout layout_;
  Schedule schedule_;
};

TEST_F(ScheduleCheckTest, AcceptsFusedAndSplitBackward) {
  EXPECT_OK(check());
  split(1, 2);
  EXPECT_OK(check());
}

TEST_F(ScheduleCheckTest, NeedsEachRankOnceInOrder) {
  std::swap(schedule_.stages[0], schedule_.stages[1]);
  expect_refused("entry 0", "is of rank 1");
  schedule_.stages.pop_back();
  expect_refused("5 ranks", "the layout has 6");
}

TEST_F(ScheduleCheckTest, ChecksTheLayoutFirst) {
  layout_.micro_batches = 9;
  expect_refused("layout", "compute 8 of 9");
}

TEST_F(ScheduleCheckTest, ForwardMustBeThereOnce) {
  List saved = list(1);
  erase(list(1), Action::kForward, 2);
  expect_refused("rank 1", "missing F2");
  list(1) = saved;
  list(1).insert(find(list(1), Action::kForward, 2), *find(list(1), Action::kForward, 2));
  expect_refused("rank 1, instruction", "(F2): done twice");
}

TEST_F(ScheduleCheckTest, BackwardMustBeThereOnceWholeOrInHalves) {
  const List saved = list(1);
  erase(list(1), Action::kBackward, 3);
  expect_refused("rank 1", "missing B3");
  list(1) = saved;
  split(1, 3);
  const List halves = list(1);
  erase(list(1), Action::kBackwardWeight, 3);
  expect_refused("rank 1", "missing W3");
  list(1) = halves;
  erase(list(1), Action::kBackwardInput, 3);
  expect_refused("rank 1", "missing I3");
  list(1) = halves;
  Instruction b = *find(list(1), Action::kBackwardInput, 3);
  b.action = Action::kBackward;
  list(1).insert(find(list(1), Action::kBackwardInput, 3), b);
  expect_refused("(I3)", "done twice, by B too");
  erase(list(1), Action::kBackwardInput, 3);
  expect_refused("(W3)", "done twice, by B too");
}

TEST_F(ScheduleCheckTest, RefusesMicroBatchesOfAnotherPipeline) {
  find(list(1), Action::kForward, 2)->micro_batch = MicroBatch(5);
  expect_refused("(F5)", "micro-batch of another pipeline");
}

TEST_F(ScheduleCheckTest, EndsOfAPipelineDoNotTalkBeyondIt) {
  const Schedule saved = schedule_;
  list(0).insert(list(0).begin(), {.action = Action::kReceiveActivation, .micro_batch = {}});
  expect_refused("rank 0", "first stage has no stage before it");
  schedule_ = saved;
  list(0).insert(list(0).end() - 3, {.action = Action::kSendGradient, .micro_batch = {}});
  expect_refused("rank 0", "first stage has no stage before it");
  schedule_ = saved;
  list(2).insert(list(2).begin() + 2, {.action = Action::kSendActivation, .micro_batch = {}});
  expect_refused("rank 2", "last stage has no stage after it");
  schedule_ = saved;
  list(2).insert(list(2).begin() + 2, {.action = Action::kReceiveGradient, .micro_batch = {}});
  expect_refused("rank 2", "last stage has no stage after it");
}

TEST_F(ScheduleCheckTest, InnerStagesReceiveAndSendEverything) {
  for (const Action action : {Action::kReceiveActivation, Action::kSendActivation,
                              Action::kReceiveGradient, Action::kSendGradient}) {
    const List saved = list(1);
    erase(list(1), action, 1);
    expect_refused("rank 1",
                   "missing " + to_string({.action = action, .micro_batch = MicroBatch(1)}));
    list(1) = saved;
  }
}

struct Order {
  Action first;
  Action then;
  const char* message;
};

TEST_F(ScheduleCheckTest, ReceivesComeBeforeAndSendsAfterTheWork) {
  const std::vector<Order> orders = {
      {Action::kReceiveActivation, Action::kForward, "(F1): must come after recv act 1"},
      {Action::kForward, Action::kSendActivation, "(send act 1): must come after F1"},
      {Action::kForward, Action::kBackward, "(B1): must come after F1"},
      {Action::kForward, Action::kReceiveGradient, "(recv grad 1): must come after F1"},
      {Action::kReceiveGradient, Action::kBackward, "(B1): must come after recv grad 1"},
      {Action::kBackward, Action::kSendGradient, "(send grad 1): must come after B1"}};
  const List saved = list(1);
  for (const Order& order : orders) {
    list(1) = saved;
    List& now = list(1);
    move_before(now, find(now, order.then, 1), find(now, order.first, 1));
    expect_refused("rank 1", order.message);
  }
  list(1) = saved;
  split(1, 1);
  List& now = list(1);
  move_before(now, find(now, Action::kBackwardWeight, 1), find(now, Action::kBackwardInput, 1));
  expect_refused("rank 1", "(W1): must come after I1");
}

TEST_F(ScheduleCheckTest, LinksKeepTheOrderOfMessages) {
  List& now = list(2);  // last stage: takes activations in another order than rank 1 sends them
  for (Instruction& i : now) {
    if (i.micro_batch == MicroBatch(1)) {
      i.micro_batch = MicroBatch(2);
    } else if (i.micro_batch == MicroBatch(2)) {
      i.micro_batch = MicroBatch(1);
    }
  }
  expect_refused("rank 2", "sends and receives differ in order");
}

TEST_F(ScheduleCheckTest, GradientsKeepTheirOrderToo) {
  // Exchanges the two whole gradient sends, after both are computed.
  List& now = list(2);
  move_before(now, find(now, Action::kSendGradient, 2), find(now, Action::kSendGradient, 3) + 1);
  schedule_.stages[2].stash_slots = 2;
  for (Instruction& i : now) i.slot = i.micro_batch.value() == 3 ? 1 : 0;
  expect_refused("rank 1 (recv grad 2)", "sends and receives differ in order");
}

TEST_F(ScheduleCheckTest, SlotsHoldOneMicroBatch) {
  const Schedule saved = schedule_;
  for (Instruction& i : list(0)) i.slot = 0;
  expect_refused("rank 0", "slot 0 still holds micro-batch 0");
  schedule_ = saved;
  schedule_.stages[0].stash_slots = 2;
  expect_refused("rank 0", "slot 2 of 2");
  schedule_ = saved;
  find(list(0), Action::kBackward, 1)->slot = 2;
  expect_refused("(B1)", "its activations are in slot 1, not in slot 2");
}

TEST_F(ScheduleCheckTest, EveryBucketIsReducedOnce) {
  const Schedule saved = schedule_;
  List& now = list(0);
  const size_t buckets = layout_.buckets(model_, Rank(0)).size();
  ASSERT_EQ(buckets, 2u);
  const auto second = now.end() - 3;
  ASSERT_EQ(to_string(*second), "reduce 1");
  second->index = 2;
  expect_refused("(reduce 2)", "the rank has 2 buckets");
  second->index = 0;
  expect_refused("(reduce 0)", "done twice");
  now.erase(second);
  expect_refused("(vote)", "before all buckets are reduced");
  now.erase(now.end() - 2, now.end());
  expect_refused("rank 0", "a bucket is not reduced");
  schedule_ = saved;
}

TEST_F(ScheduleCheckTest, ReductionsFollowTheLastBackward) {
  List& now = list(2);
  move_before(now, now.end() - 3, find(now, Action::kBackward, 3));
  expect_refused("(B3)", "after a reduction of gradients that it adds to");
}

TEST_F(ScheduleCheckTest, WeightGradientsAfterAReductionAreRefused) {
  split(2, 3);
  List& now = list(2);
  move_before(now, find(now, Action::kBackwardWeight, 3), now.end() - 2);
  expect_refused("(W3)", "after a reduction of gradients that it adds to");
}

TEST_F(ScheduleCheckTest, VoteAndApplyEndTheStep) {
  const List saved = list(0);
  list(0).pop_back();
  expect_refused("rank 0", "missing apply");
  list(0).pop_back();
  expect_refused("rank 0", "missing vote");
  list(0) = saved;
  std::swap(list(0).end()[-1], list(0).end()[-2]);
  expect_refused("(apply)", "before the vote");
  list(0) = saved;
  list(0).insert(list(0).end() - 1, {.action = Action::kVote, .micro_batch = {}});
  expect_refused("(vote)", "after the vote");
  list(0) = saved;
  list(0).push_back({.action = Action::kApply, .micro_batch = {}});
  expect_refused("(apply)", "after apply");
  list(0) = saved;
  std::rotate(list(2).end() - 5, list(2).end() - 4, list(2).end() - 1);
  expect_refused("(send grad 3)", "after the vote");
}

TEST_F(ScheduleCheckTest, CrossedReductionsAreADeadlock) {
  // Ranks 0 and 3 hold the tied table (bucket 1) and their first layers (bucket 0) together.
  std::swap(list(0).end()[-3], list(0).end()[-4]);
  expect_refused("deadlock", "rank 0");
}

TEST_F(ScheduleCheckTest, BlockingSendsMakeTheClassicOrderDeadlock) {
  EXPECT_OK(check(SendModel::kEager));
  EXPECT_OK(check(SendModel::kRendezvous));
  EXPECT_THAT(
      check(SendModel::kBlocking),
      StatusIs(StatusCode::kInvalidArgument,
               AllOf(HasSubstr("deadlock"), HasSubstr("(send act"), HasSubstr("(send grad"))));
}

TEST_F(ScheduleCheckTest, BlockingSendsWorkWhenTheGradientIsTakenFirst) {
  // The stage's newest activation is needed by the next stage only after it has sent the gradient.
  for (uint32_t r = 0; r < 6; ++r) {
    if (r % 3 == 2) continue;
    const uint32_t slots = schedule_.stages[r].stash_slots;
    const uint32_t first = layout_.pipeline(Rank(r)).micro_batch_begin;
    for (uint32_t i = 0; i + slots - 1 < 4; ++i) {
      List& now = list(r);
      const auto send = find(now, Action::kSendActivation, first + i + slots - 1);
      move_before(now, send, find(now, Action::kReceiveGradient, first + i) + 1);
    }
  }
  EXPECT_OK(check(SendModel::kBlocking));
  EXPECT_OK(check(SendModel::kRendezvous));
}

TEST_F(ScheduleCheckTest, PostedSendsStillDeadlockWhenBothWait) {
  // Rank 0 wants the gradient of micro-batch 0 before it sends the activation of 0.
  List& now = list(0);
  move_before(now, find(now, Action::kSendActivation, 0),
              find(now, Action::kReceiveGradient, 0) + 1);
  // keep the order of messages on the link
  move_before(now, find(now, Action::kSendActivation, 1),
              find(now, Action::kSendActivation, 0) + 1);
  move_before(now, find(now, Action::kSendActivation, 2),
              find(now, Action::kSendActivation, 1) + 1);
  expect_refused("deadlock", "rank 0 at instruction");
  EXPECT_THAT(check(SendModel::kEager), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(ScheduleCheckTest, OneSlotEachIsSerialAndSafeUnderEverySendModel) {
  // In a chain of stages a slot that waits for its gradient to be taken always gets free: the stage
  // before needs nothing from this one until it takes that gradient.
  const Layout layout = grid(model_, {.pipelines = 1, .stages = 2, .micro_batches = 2});
  const auto at = [](Action action, uint32_t m, uint32_t slot) {
    return Instruction{.action = action, .micro_batch = MicroBatch(m), .slot = slot};
  };
  Schedule schedule = make_schedule_1f1b(model_, layout);
  List tail(schedule.stages[0].instructions.end() - 4, schedule.stages[0].instructions.end());
  List first{at(Action::kForward, 0, 0),         at(Action::kSendActivation, 0, 0),
             at(Action::kReceiveGradient, 0, 0), at(Action::kBackward, 0, 0),
             at(Action::kForward, 1, 0),         at(Action::kSendActivation, 1, 0),
             at(Action::kReceiveGradient, 1, 0), at(Action::kBackward, 1, 0)};
  first.insert(first.end(), tail.begin(), tail.end());
  schedule.stages[0].instructions = first;
  schedule.stages[0].stash_slots = 1;
  for (const SendModel sends : {SendModel::kEager, SendModel::kRendezvous, SendModel::kBlocking}) {
    EXPECT_OK(check_schedule(model_, layout, schedule, sends));
  }
}

TEST_F(ScheduleCheckTest, UnequalPipelinesWithTiedTablesReduceInOneOrder) {
  const Layout layout = unequal_layout();
  Schedule schedule = make_schedule_1f1b(model_, layout);
  EXPECT_OK(check_schedule(model_, layout, schedule));
  // Every exchange of two neighbouring reductions that are shared with the same rank deadlocks.
  size_t refused = 0;
  for (uint32_t r = 0; r < layout.ranks(); ++r) {
    const std::vector<ReduceBucket> buckets = layout.buckets(model_, Rank(r));
    for (size_t b = 0; b + 1 < buckets.size(); ++b) {
      std::vector<Rank> common;
      std::set_intersection(buckets[b].holders.begin(), buckets[b].holders.end(),
                            buckets[b + 1].holders.begin(), buckets[b + 1].holders.end(),
                            std::back_inserter(common));
      if (common.size() < 2) continue;
      Schedule crossed = schedule;
      List& now = crossed.stages[r].instructions;
      const size_t at = now.size() - 2 - buckets.size() + b;
      std::swap(now[at], now[at + 1]);
      EXPECT_THAT(check_schedule(model_, layout, crossed),
                  StatusIs(StatusCode::kInvalidArgument, HasSubstr("deadlock")));
      ++refused;
    }
  }
  EXPECT_GT(refused, 4u);
}

}  // namespace
}  // namespace perdure::parallel
