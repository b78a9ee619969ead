// The control side of a worker: what it does with orders, and what with silence.

#include "runtime/worker/worker.h"

#include "tests/runtime/worker/worker_harness.h"

namespace perdure::runtime::worker {
namespace {

using base::Epoch;
using base::StatusCode;
using base::Step;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing::StatusIs;

// -- joining

TEST_F(WorkerTest, AnAgentThatIsNotThereIsUnavailable) {
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(engine_.calls, Contains("close"));
}

TEST_F(WorkerTest, AnAgentThatCannotBeReachedIsGivenUp) {
  start_agent();
  world_.network().partition({"worker"});
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_LT(world_.now(), 11_s);
}

TEST_F(WorkerTest, AnAgentOfAnotherJobIsLeft) {
  agent_stage_.secret = "of another job";
  start_agent();
  start_worker();
  EXPECT_FALSE(outcome().is_ok());
  EXPECT_THAT(agent_stage_.heard, IsEmpty());
}

TEST_F(WorkerTest, ItSaysWhoItIsFirst) {
  start_agent();
  start_worker();
  ASSERT_TRUE(until([this] { return !agent_stage_.heard.empty(); }));
  EXPECT_EQ(agent_stage_.peer->role, rpc::PeerRole::kWorker);
  EXPECT_EQ(agent_stage_.peer->number, 5u);
  EXPECT_EQ(agent_stage_.peer->incarnation, base::Incarnation(3));
  const auto up = heard<protocol::WorkerUp>();
  ASSERT_EQ(up.size(), 1u);
  EXPECT_EQ(up[0].info.worker, base::WorkerId(5));
  EXPECT_EQ(up[0].info.pid, 99u);
}

TEST_F(WorkerTest, WithoutAJobItLeaves) {
  agent_stage_.gives_job = false;
  start_agent();
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_LT(world_.now(), 11_s);
}

TEST_F(WorkerTest, AnotherMessageInPlaceOfTheJobEndsIt) {
  agent_stage_.instead_of_job = protocol::to_frame(protocol::Fence{}, {});
  start_agent();
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("was expected")));
}

TEST_F(WorkerTest, ADeviceThatCannotBeOpenedEndsIt) {
  engine_.device = base::invalid_argument("no device abacus");
  start_agent();
  start_worker();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("abacus")));
}

// -- its end

TEST_F(WorkerTest, DismissedWhenTheJobIsDoneItEndsWell) {
  join();
  order(protocol::Dismiss{}, 0);
  EXPECT_OK(outcome());
  EXPECT_THAT(engine_.calls, ElementsAre("abort the worker leaves", "close"));
}

TEST_F(WorkerTest, DismissedForAnotherReasonItIsAborted) {
  join();
  order(protocol::Dismiss{.code = 5, .why = "not wanted"}, 0);
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kAborted));
}

TEST_F(WorkerTest, WithItsAgentItEnds) {
  join();
  engine_.blocks = true;
  prepare(1, 0);  // in the middle of something
  close_agent();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable, HasSubstr("the agent is lost")));
  EXPECT_EQ(engine_.calls.back(), "close");
}

// -- fences

TEST_F(WorkerTest, AFenceIsAnsweredWithTheState) {
  join();
  engine_.state.has_state = 1;
  engine_.state.committed.step = Step(7);
  order(protocol::Fence{.why = "start"}, 3);
  EXPECT_THAT(engine_.calls, ElementsAre("abort epoch 3 begins", "fence 3"));
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].state.committed.step, Step(7));
  EXPECT_EQ(last().stamp.epoch, Epoch(3));
  EXPECT_EQ(last().stamp.incarnation, base::Incarnation(3));
}

TEST_F(WorkerTest, OrdersOfAnOldEpochAreRefused) {
  join();
  load(5, 0);
  clear();
  order(protocol::Fence{}, 4);
  order(protocol::AskVote{}, 4);
  order(protocol::ApplyVote{}, 4);
  order(plan_for(4, 0), 4);
  order(protocol::Load{}, 4);
  order(protocol::Go{}, 4);
  order(protocol::Hold{}, 4);
  order(protocol::AskReports{}, 4);
  EXPECT_THAT(engine_.calls, IsEmpty());
  EXPECT_THAT(agent_stage_.heard, IsEmpty());
}

TEST_F(WorkerTest, OrdersOfAnEpochThatWasNotBegunAreRefused) {
  join();
  load(5, 0);
  clear();
  order(plan_for(6, 0), 6);
  order(protocol::Go{}, 6);
  EXPECT_THAT(engine_.calls, IsEmpty());
  order(protocol::Go{}, 5);
  EXPECT_THAT(engine_.calls, ElementsAre("go"));
}

TEST_F(WorkerTest, AFenceInterruptsALoadWhoseAnswerIsNotSent) {
  join();
  prepare(1, 0);
  clear();
  engine_.blocks = true;
  order(protocol::Load{.addresses = std::vector<protocol::RankAddress>(3)}, 1);
  EXPECT_THAT(engine_.calls, ElementsAre("load"));
  order(protocol::Fence{.why = "a member is lost"}, 2);
  EXPECT_THAT(engine_.calls, ElementsAre("load", "abort epoch 2 begins", "fence 2"));
  EXPECT_THAT(heard<protocol::Loaded>(), IsEmpty());
  EXPECT_THAT(heard<protocol::Stopped>(), IsEmpty());
  EXPECT_EQ(heard<protocol::StateTold>().size(), 1u);
}

TEST_F(WorkerTest, AFenceInterruptsAPrepareAndVoidsWhatWaits) {
  join();
  order(protocol::Fence{}, 1);
  clear();
  engine_.blocks = true;
  order(plan_for(1, 0), 1);
  order(protocol::Load{.addresses = std::vector<protocol::RankAddress>(3)}, 1);
  order(protocol::Go{}, 1);
  order(protocol::Fence{}, 2);
  EXPECT_THAT(engine_.calls, ElementsAre("prepare 0", "abort epoch 2 begins", "fence 2"));
  EXPECT_THAT(heard<protocol::Prepared>(), IsEmpty());
}

// The phase that it belongs to has ended: what was ordered in it is not to be begun any more.
TEST_F(WorkerTest, AnOrderWhoseTimeIsOverIsNotBegun) {
  join();
  engine_.fence_blocks = true;
  order(protocol::Fence{}, 1);
  rpc::Frame late = protocol::to_frame(plan_for(1, 0), {.epoch = Epoch(1), .budget_ms = 500});
  order(late);
  rpc::Frame in_time = protocol::to_frame(protocol::Hold{}, {.epoch = Epoch(1), .budget_ms = 5000});
  order(in_time);
  pass(1_s);
  release_engine();
  EXPECT_THAT(engine_.calls, ElementsAre("abort epoch 1 begins", "fence 1", "hold"));
}

TEST_F(WorkerTest, TwoFencesAreAnsweredOnce) {
  join();
  engine_.fence_blocks = true;
  order(protocol::Fence{}, 1);
  order(protocol::Fence{}, 2);
  release_engine();
  const auto told = heard<protocol::StateTold>();
  EXPECT_EQ(told.size(), 1u);
  EXPECT_EQ(last().stamp.epoch, Epoch(2));
  EXPECT_THAT(engine_.calls, Contains("fence 2"));
}

TEST_F(WorkerTest, MoreOrdersThanItCanKeepEndIt) {
  join();
  order(protocol::Fence{}, 1);
  engine_.blocks = true;
  order(plan_for(1, 0), 1);
  for (int i = 0; i < 1100 && !is_over(); ++i) order(protocol::Hold{}, 1);
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("too many orders")));
}

// -- votes

TEST_F(WorkerTest, TheVoteIsGiven) {
  join();
  order(protocol::Fence{}, 4);
  engine_.vote = recovery::VoteValue{
      .step = Step(9), .id = {.epoch = Epoch(3), .attempt = 2}, .words = {1, 2, 3}};
  order(protocol::AskVote{}, 4);
  const auto told = heard<protocol::VoteTold>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].vote.step, Step(9));
  EXPECT_EQ(told[0].vote.id, engine_.vote->id);
  EXPECT_THAT(told[0].vote.words, ElementsAre(1, 2, 3));
}

TEST_F(WorkerTest, AVoteThatIsNotThereIsSaidSo) {
  join();
  order(protocol::Fence{}, 4);
  order(protocol::AskVote{}, 4);
  EXPECT_THAT(heard<protocol::VoteTold>(), IsEmpty());
  expect_stopped(StatusCode::kNotFound, "no vote");
}

TEST_F(WorkerTest, AVoteIsAppliedAndTheNewStateTold) {
  join();
  order(protocol::Fence{}, 4);
  clear();
  engine_.state_after_apply.committed.step = Step(9);
  const recovery::VoteValue vote{.step = Step(9), .id = {.epoch = Epoch(3), .attempt = 1}};
  order(protocol::ApplyVote{.vote = vote}, 4);
  EXPECT_EQ(engine_.given_vote->id, vote.id);
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].state.committed.step, Step(9));
}

TEST_F(WorkerTest, AVoteThatCannotBeAppliedLeavesTheOldState) {
  join();
  engine_.state.committed.step = Step(8);
  engine_.applied = base::failed_precondition("another vote is pending");
  order(protocol::Fence{}, 4);
  clear();
  order(protocol::ApplyVote{}, 4);
  order_garbage(MessageType::kApplyVote, 4);
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 2u);
  for (const auto& t : told) EXPECT_EQ(t.state.committed.step, Step(8));
  EXPECT_EQ(engine_.count("apply"), 1u);
}

// -- older state

recovery::StateOffer offer_of(uint64_t step) {
  recovery::StateOffer offer;
  offer.committed.step = Step(step);
  offer.tensors = {{base::TensorId(1), 2}};
  return offer;
}

TEST_F(WorkerTest, OffersAreToldWhenTheFenceAsksForThem) {
  join();
  engine_.offers = {offer_of(7)};
  order(protocol::Fence{}, 3);
  order(protocol::Fence{.with_offers = 1}, 4);
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_TRUE(told[0].state.offers.empty());
  ASSERT_EQ(told[1].state.offers.size(), 1u);
  EXPECT_EQ(told[1].state.offers[0].committed.step, Step(7));
}

// Its agent fences it once more because its own lease was over, and knows nothing of offers.
TEST_F(WorkerTest, AnotherFenceOfTheEpochDoesNotForgetTheOffers) {
  join();
  engine_.offers = {offer_of(7)};
  order(protocol::Fence{.with_offers = 1}, 4);
  order(protocol::Fence{.why = "the coordinator is silent"}, 4);
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].state.offers.size(), 1u);
  order(protocol::Fence{}, 5);
  EXPECT_TRUE(heard<protocol::StateTold>().back().state.offers.empty());
}

TEST_F(WorkerTest, ARestoreIsAnsweredWithWhatIsHeldAndWhatWasBad) {
  join();
  order(protocol::Fence{.with_offers = 1}, 4);
  clear();
  engine_.restored.state.has_state = 1;
  engine_.restored.state.committed.step = Step(7);
  engine_.restored.bad_sources = {"blocks.0 of step 7: a bit has flipped"};
  protocol::Restore restore;
  restore.target.step = Step(7);
  restore.tensors = {{base::TensorId(1), 2}, {base::TensorId(2), 3}};
  order(restore, 4);
  EXPECT_EQ(engine_.count("restore 2"), 1u);
  EXPECT_EQ(engine_.restore_target.step, Step(7));
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].state.committed.step, Step(7));
  EXPECT_EQ(told[0].bad_sources, engine_.restored.bad_sources);
}

TEST_F(WorkerTest, AFenceVoidsARestoreThatGoesOn) {
  join();
  order(protocol::Fence{}, 4);
  clear();
  engine_.blocks = true;
  order(protocol::Restore{}, 4);
  order(protocol::Fence{}, 5);
  const auto told = heard<protocol::StateTold>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(last().stamp.epoch, Epoch(5));
}

TEST_F(WorkerTest, ARestoreThatCannotBeReadIsRefused) {
  join();
  order(protocol::Fence{}, 4);
  clear();
  order_garbage(MessageType::kRestore, 4);
  EXPECT_TRUE(heard<protocol::StateTold>().empty());
  EXPECT_EQ(engine_.count("restore"), 0u);
  EXPECT_EQ(heard<protocol::Stopped>().size(), 1u);
}

// -- prepare and load

TEST_F(WorkerTest, APlanIsPreparedByItsRank) {
  join();
  engine_.prepared = protocol::Prepared{.address = {std::byte{1}, std::byte{2}}};
  prepare(2, 1);
  EXPECT_THAT(engine_.calls, Contains("prepare 1"));
  const auto told = heard<protocol::Prepared>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].address.size(), 2u);
  EXPECT_EQ(told[0].device, "fake device");
}

TEST_F(WorkerTest, APlanForSomebodyElseIsRefused) {
  join();
  prepare(2, 77);
  expect_stopped(StatusCode::kAborted, "not for this worker");
  EXPECT_EQ(engine_.count("prepare"), 0u);
}

TEST_F(WorkerTest, APlanForAnOlderProcessOfItsNumberIsRefused) {
  join();
  order(protocol::Fence{}, 2);
  protocol::Prepare message = plan_for(2, 1);
  message.ranks[1].incarnation = base::Incarnation(2);
  order(message, 2);
  expect_stopped(StatusCode::kAborted, "not for this worker");
}

TEST_F(WorkerTest, APlanOfAnotherEpochThanItsStampIsRefused) {
  join();
  order(protocol::Fence{}, 2);
  order(plan_for(1, 0), 2);
  expect_stopped(StatusCode::kAborted, "not for this worker");
}

TEST_F(WorkerTest, APlanThatCannotBeReadIsRefused) {
  join();
  order(protocol::Fence{}, 2);
  order_garbage(MessageType::kPrepare, 2);
  expect_stopped(StatusCode::kDataLoss, "");
}

TEST_F(WorkerTest, WhatCannotBePreparedIsToldWithItsCode) {
  join();
  engine_.prepared = base::resource_exhausted("no memory");
  prepare(2, 0);
  expect_stopped(StatusCode::kResourceExhausted, "no memory");
}

TEST_F(WorkerTest, LoadedIsTold) {
  join();
  engine_.loaded = protocol::Loaded{.tensors = {{base::TensorId(1), 77}}};
  load(2, 0);
  const auto told = heard<protocol::Loaded>();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].tensors[0].digest, 77u);
  EXPECT_EQ(engine_.addresses.size(), 3u);
}

TEST_F(WorkerTest, LoadWithoutPrepareIsRefused) {
  join();
  order(protocol::Fence{}, 2);
  order(protocol::Load{}, 2);
  expect_stopped(StatusCode::kAborted, "load before prepare");
  EXPECT_EQ(engine_.count("load"), 0u);
}

TEST_F(WorkerTest, APrepareOfTheEpochBeforeDoesNotCount) {
  join();
  prepare(2, 0);
  order(protocol::Fence{}, 3);
  clear();
  order(protocol::Load{}, 3);
  expect_stopped(StatusCode::kAborted, "load before prepare");
}

TEST_F(WorkerTest, WhatCannotBeLoadedIsToldWithItsCode) {
  join();
  engine_.loaded = base::unavailable("rank 2 does not answer");
  load(2, 0);
  expect_stopped(StatusCode::kUnavailable, "rank 2");
  clear();
  order_garbage(MessageType::kLoad, 2);
  expect_stopped(StatusCode::kDataLoss, "");
}

// -- training

class TrainingWorkerTest : public WorkerTest {
 protected:
  void train(uint32_t rank) {
    join();
    load(2, rank);
    clear();
    order(protocol::Go{}, 2);
  }
  static protocol::StepReport report(uint64_t step) { return {.step = Step(step)}; }
};

TEST_F(TrainingWorkerTest, RankZeroFirstTellsWhatWasNotHeard) {
  join();
  engine_.reports = {report(1), report(2), report(3)};
  load(2, 0);
  clear();
  order(protocol::Go{.reported = Step(1)}, 2);
  const auto told = heard<protocol::StepReport>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].step, Step(2));
  EXPECT_EQ(told[1].step, Step(3));
  EXPECT_THAT(engine_.calls, ElementsAre("go"));
}

TEST_F(TrainingWorkerTest, OtherRanksTellOnlyWhenTheyAreAsked) {
  engine_.reports = {report(1), report(2)};
  train(1);
  EXPECT_THAT(heard<protocol::StepReport>(), IsEmpty());
  engine_says([](EngineListener& l) { l.on_step(report(3)); });
  engine_says([](EngineListener& l) { l.on_evaluation({.step = Step(3)}); });
  EXPECT_THAT(agent_stage_.heard, IsEmpty());
  order(protocol::AskReports{.reported = Step(1)}, 2);
  EXPECT_EQ(heard<protocol::StepReport>().size(), 1u);
}

TEST_F(TrainingWorkerTest, RankZeroTellsStepsAndEvaluations) {
  train(0);
  engine_says([](EngineListener& l) { l.on_step(report(1)); });
  engine_says([](EngineListener& l) { l.on_evaluation({.step = Step(1), .loss = 2.0}); });
  EXPECT_EQ(heard<protocol::StepReport>().size(), 1u);
  EXPECT_EQ(heard<protocol::EvaluationReport>().size(), 1u);
  EXPECT_EQ(last().stamp.epoch, Epoch(2));
}

TEST_F(TrainingWorkerTest, AnEngineThatDoesNotStartIsTold) {
  engine_.gone = base::internal("no thread");
  train(0);
  expect_stopped(StatusCode::kInternal, "no thread");
}

TEST_F(TrainingWorkerTest, AGoThatCannotBeReadStartsNothing) {
  join();
  load(2, 0);
  clear();
  order_garbage(MessageType::kGo, 2);
  EXPECT_THAT(engine_.calls, IsEmpty());
  expect_stopped(StatusCode::kDataLoss, "");
}

TEST_F(TrainingWorkerTest, HoldReachesTheEngineAndItsStopIsTold) {
  train(0);
  order(protocol::Hold{}, 2);
  EXPECT_THAT(engine_.calls, Contains("hold"));
  engine_says([](EngineListener& l) { l.on_stopped(base::Status::ok(), Step(4)); });
  const auto stopped = heard<protocol::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_EQ(stopped[0].code, 0u);
  EXPECT_EQ(stopped[0].step, Step(4));
}

TEST_F(TrainingWorkerTest, FinishedIsToldAgainWhenAsked) {
  train(1);
  engine_says([](EngineListener& l) { l.on_finished({.step = Step(9), .state_digest = 5}); });
  EXPECT_EQ(heard<protocol::Finished>().size(), 1u);
  order(protocol::AskReports{.reported = Step(9)}, 2);
  const auto told = heard<protocol::Finished>();
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[1].state_digest, 5u);
  EXPECT_FALSE(is_over());  // it waits for its dismissal
  order(protocol::Fence{}, 3);
  order(protocol::AskReports{.reported = Step(9)}, 3);
  EXPECT_EQ(heard<protocol::Finished>().size(), 2u);  // of the epoch before
}

TEST_F(TrainingWorkerTest, UnknownOrdersAndGarbageDoNotEndIt) {
  train(0);
  order(rpc::Frame{.type = 999, .stamp = {.epoch = Epoch(2)}});
  order_garbage(MessageType::kAskReports, 2);
  order_garbage(MessageType::kBeatAck, 2);
  EXPECT_FALSE(is_over());
  engine_says([](EngineListener& l) { l.on_step(report(1)); });
  EXPECT_EQ(heard<protocol::StepReport>().size(), 1u);
}

// -- silence of the agent

TEST_F(TrainingWorkerTest, ItBeats) {
  train(0);
  const size_t before = agent_stage_.beats;
  pass(10_s);
  EXPECT_NEAR(static_cast<double>(agent_stage_.beats - before), 40.0, 1.0);
  EXPECT_THAT(engine_.calls, Not(Contains(StartsWith("abort"))));
}

TEST_F(TrainingWorkerTest, WhenTheAgentIsSilentItLeavesItsEpochOnce) {
  train(0);
  agent_stage_.acks = false;
  pass(5_s);
  EXPECT_EQ(engine_.count("abort the agent is silent"), 1u);
  expect_stopped(StatusCode::kAborted, "the agent is silent");
  EXPECT_FALSE(is_over());

  agent_stage_.acks = true;
  pass(5_s);
  agent_stage_.acks = false;
  pass(5_s);
  EXPECT_EQ(engine_.count("abort the agent is silent"), 2u);
}

TEST_F(TrainingWorkerTest, AsLongAsStepsAreCommittedSilenceIsNoReason) {
  train(0);
  agent_stage_.acks = false;
  for (uint64_t s = 1; s <= 40; ++s) {
    engine_says([s](EngineListener& l) { l.on_step(report(s)); });
    pass(150_ms);
  }
  EXPECT_EQ(engine_.count("abort"), 0u);
  pass(5_s);
  EXPECT_EQ(engine_.count("abort the agent is silent"), 1u);
}

TEST_F(TrainingWorkerTest, AnOrphanEndsInTheEnd) {
  train(0);
  agent_stage_.acks = false;
  pass(9 * 60_s);
  EXPECT_FALSE(is_over());
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable, HasSubstr("orphaned")));
  EXPECT_LT(world_.now(), 11 * 60_s);
}

TEST_F(TrainingWorkerTest, ACutCableIsSilenceToo) {
  train(0);
  world_.network().partition({"worker"});
  pass(5_s);
  EXPECT_EQ(engine_.count("abort the agent is silent"), 1u);
  world_.network().heal_all();
  pass(5_s);
  order(protocol::Fence{}, 3);
  EXPECT_EQ(heard<protocol::StateTold>().size(), 1u);
}

}  // namespace
}  // namespace perdure::runtime::worker
