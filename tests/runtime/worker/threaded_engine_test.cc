#include "runtime/worker/threaded_engine.h"

#include "base/fault_point.h"
#include "parallel/sample_mark.h"
#include "runtime/engine/step_phases.h"
#include "runtime/transport/ucx_fabric.h"
#include "runtime/worker/epoch_phases.h"
#include "tests/runtime/worker/engine_team.h"

namespace perdure::runtime::worker {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::HasSubstr;

constexpr const char* kJob = R"([model]
family = "gpt2"
layers = 2
width = 32
heads = 2
vocabulary = 256
context = 16
[data]
synthetic_tokens = 4096
[batch]
micro_batches = 6
[numerics]
width = 32
block = 64
[run]
steps = 8
eval_every = 4
eval_batches = 3
step_timeout_s = 20
)";
constexpr uint64_t kSteps = 8;

struct Expected {
  std::map<uint64_t, protocol::StepReport> steps;
  protocol::Finished finished;
  std::vector<protocol::EvaluationReport> evaluations;
};

// One rank that nothing disturbs.
const Expected& undisturbed() {
  static const Expected expected = [] {
    EngineTeam team(kJob, 1);
    team.change(1, 1, {0});
    team.run_until([&] { return team.at(0).finished.has_value(); });
    Expected e;
    for (const auto& report : team.at(0).steps) e.steps[report.step.value()] = report;
    e.finished = *team.at(0).finished;
    e.evaluations = team.at(0).evaluations;
    return e;
  }();
  return expected;
}

void expect_undisturbed(const Member& member) {
  for (const protocol::StepReport& report : member.steps) {
    const protocol::StepReport& expected = undisturbed().steps.at(report.step.value());
    EXPECT_EQ(report.digest_before, expected.digest_before) << "step " << report.step;
    EXPECT_EQ(report.loss, expected.loss);
    EXPECT_EQ(report.learning_rate, expected.learning_rate);
    EXPECT_EQ(report.sample_sum, parallel::sample_marks(report.first_sample, report.sample_count));
  }
  for (const protocol::EvaluationReport& report : member.evaluations) {
    for (const auto& expected : undisturbed().evaluations) {
      if (expected.step == report.step) {
        EXPECT_EQ(report.loss, expected.loss);
      }
    }
  }
}

void expect_finished(EngineTeam& team, const std::vector<uint32_t>& workers) {
  for (const uint32_t w : workers) {
    team.run_until([&] { return team.at(w).finished.has_value() || team.at(w).stopped; });
    ASSERT_TRUE(team.at(w).finished.has_value()) << *team.at(w).stopped;
    EXPECT_EQ(team.at(w).finished->step, base::Step(kSteps));
    EXPECT_EQ(team.at(w).finished->state_digest, undisturbed().finished.state_digest);
    EXPECT_EQ(team.at(w).finished->params_digest, undisturbed().finished.params_digest);
    expect_undisturbed(team.at(w));
  }
}

void run_until_step(EngineTeam& team, uint32_t worker, uint64_t step) {
  Member& member = team.at(worker);
  team.run_until([&] { return !member.steps.empty() && member.steps.back().step.value() >= step; });
}

// Stops the engine thread of whoever comes by first, so that a test can act at that moment.
class Halt final : public base::FaultHandler {
 public:
  Halt(std::string_view point, uint64_t step) : point_(point), step_(step) {}
  base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
    if (name != point_ || base::fault_time.step.load() < step_) return base::Status::ok();
    base::MutexLock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    while (!released_) changed_.wait(mutex_);
    return base::Status::ok();
  }
  void await(uint32_t count) {
    base::MutexLock lock(mutex_);
    while (waiting_ < count) changed_.wait(mutex_);
  }
  void release() {
    base::MutexLock lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

 private:
  const std::string_view point_;
  const uint64_t step_;
  base::Mutex mutex_;
  base::CondVar changed_;
  uint32_t waiting_ GUARDED_BY(mutex_) = 0;
  bool released_ GUARDED_BY(mutex_) = false;
};

TEST(ThreadedEngineTest, TrainsToTheEndAndEveryRankTells) {
  EngineTeam team(kJob, 4);
  team.change(2, 2, {0, 1, 2, 3});
  expect_finished(team, {0, 1, 2, 3});
  for (uint32_t w = 0; w < 4; ++w) {
    EXPECT_EQ(team.at(w).steps.size(), kSteps);
    EXPECT_EQ(team.at(w).steps[3].epoch, base::Epoch(1));
    EXPECT_EQ(team.at(w).evaluations.size(), 2u);
    EXPECT_EQ(team.at(w).engine->reports(base::Step(5)).size(), 3u);
    EXPECT_EQ(team.at(w).engine->reports(base::Step(5)).front().step, base::Step(6));
    EXPECT_EQ(team.at(w).engine->state().committed.step, base::Step(kSteps));
  }
  EXPECT_GE(team.meshes().ready_calls, 8) << "when opened, and when training begins";
}

TEST(ThreadedEngineTest, AHoldStopsAllAfterTheSameStepAndTheNextEpochGoesOn) {
  EngineTeam team(kJob, 4);
  Halt halt(engine::kStepCompute, 4);
  {
    const base::ScopedFaultHandler armed(halt);
    team.change(2, 2, {0, 1, 2, 3});
    halt.await(2);  // the first stages: the others wait for them
    team.at(2).engine->hold();
    team.at(2).engine->hold();
    halt.release();
    for (uint32_t w = 0; w < 4; ++w) {
      team.run_until([&] { return team.at(w).stopped.has_value(); });
      EXPECT_OK(*team.at(w).stopped);
      EXPECT_EQ(team.at(w).stopped_at, base::Step(4));
    }
  }
  EXPECT_TRUE(team.at(0).evaluations.empty()) << "the next epoch owes it";
  team.change(1, 3, {3, 1, 2});
  expect_finished(team, {3, 1, 2});
  EXPECT_EQ(team.at(1).evaluations.size(), 2u);
  EXPECT_EQ(team.at(1).evaluations[0].step, base::Step(4));
}

TEST(ThreadedEngineTest, WhatAFenceInterruptsIsDoneAgainWithTheSameBits) {
  for (const std::string_view phase :
       {engine::kStepBegin, engine::kStepCompute, engine::kStepReduce, engine::kStepVote,
        engine::kStepVoted, engine::kStepApply, engine::kStepCommit, engine::kStepEvaluate}) {
    SCOPED_TRACE(phase);
    EngineTeam team(kJob, 4);
    Halt halt(phase, 3);
    {
      const base::ScopedFaultHandler armed(halt);
      team.change(2, 2, {0, 1, 2, 3});
      halt.await(1);
      // Fences abort first; the engine threads go on when all are aborted.
      for (uint32_t w = 0; w < 4; ++w) team.at(w).engine->abort(base::aborted("test"));
      halt.release();
      team.settle({0, 1, 2, 3});
    }
    team.lose(0);
    team.change(1, 3, {1, 2, 3});
    expect_finished(team, {1, 2, 3});
  }
}

TEST(ThreadedEngineTest, ALostPeerStopsTheOthersAsUnavailable) {
  EngineTeam team(kJob, 4);
  Halt halt(engine::kStepCompute, 3);
  const base::ScopedFaultHandler armed(halt);
  team.change(2, 2, {0, 1, 2, 3});
  halt.await(2);
  team.at(1).engine->abort(base::aborted("lease over"));
  halt.release();
  for (const uint32_t w : {0u, 2u, 3u}) {
    team.run_until([&] { return team.at(w).stopped.has_value(); });
    EXPECT_THAT(*team.at(w).stopped, StatusIs(StatusCode::kUnavailable));
  }
  EXPECT_FALSE(team.at(1).stopped.has_value()) << "who asked for it is not told";
  team.change(2, 2, {1, 0, 3, 2});
  expect_finished(team, {0, 1, 2, 3});
}

class UcxMaker final : public FabricMaker {
 public:
  base::Result<std::unique_ptr<collective::MeshFabric>> make(
      const FabricRequest& request) override {
    return source_.make({.rank = request.rank,
                         .ranks = request.ranks,
                         .epoch = request.epoch,
                         .network_device = request.network_device});
  }
  void get_ready(const FabricRequest& request) override {
    source_.get_ready({.network_device = request.network_device});
  }

 private:
  transport::UcxFabricSource source_;
};

TEST(ThreadedEngineTest, GoesThroughEpochsOverUcx) {
  EngineTeam team(kJob, 4, [] { return std::make_unique<UcxMaker>(); });
  for (const std::string_view phase : {engine::kStepCompute, engine::kStepVote}) {
    Halt halt(phase, phase == engine::kStepVote ? 5 : 3);
    const base::ScopedFaultHandler armed(halt);
    team.change(2, 2, {3, 1, 2, 0});
    halt.await(2);
    team.at(1).engine->abort(base::aborted("struck"));
    halt.release();
    for (const uint32_t w : {0u, 2u, 3u}) {
      team.run_until([&] { return team.at(w).stopped.has_value(); });
      EXPECT_THAT(*team.at(w).stopped, StatusIs(StatusCode::kUnavailable));
    }
  }
  team.settle({0, 1, 2, 3});
  team.lose(1);
  team.change(1, 3, {2, 1, 0});
  team.run_until([&] { return team.at(1).finished || team.at(1).stopped; });
  team.change(3, 1, {0, 1, 2});
  expect_finished(team, {0, 1, 2});
}

TEST(ThreadedEngineTest, SkippedStepsInARowAreCountedAcrossEpochs) {
  std::string job = kJob;
  job.replace(job.find("steps = 8"), 9, "steps = 100");
  // Matrices grow a hundredfold in each step, until gradients are not finite.
  job += "[optimizer]\nlr = 10\nweight_decay = 10\n";
  const auto refused = StatusIs(StatusCode::kDataLoss, HasSubstr("not finite"));
  EngineTeam one(job, 1);
  one.change(1, 1, {0});
  one.run_until([&] { return one.at(0).stopped || one.at(0).finished; });
  ASSERT_TRUE(one.at(0).stopped.has_value());
  ASSERT_THAT(*one.at(0).stopped, refused);

  EngineTeam team(job, 2);
  Halt halt(engine::kStepCompute, one.at(0).stopped_at.value() - 4);
  {
    const base::ScopedFaultHandler armed(halt);
    team.change(2, 1, {0, 1});
    halt.await(2);
    team.at(0).engine->hold();
    halt.release();
    team.run_until([&] { return team.at(0).stopped && team.at(1).stopped; });
  }
  EXPECT_OK(*team.at(0).stopped);
  team.change(1, 2, {1, 0});
  EXPECT_EQ(team.at(0).engine->state().committed.skipped_in_a_row, 6u);
  for (uint32_t w = 0; w < 2; ++w) {
    team.run_until([&] { return team.at(w).stopped.has_value(); });
    EXPECT_THAT(*team.at(w).stopped, refused);
    EXPECT_EQ(team.at(w).stopped_at, one.at(0).stopped_at);
  }
}

TEST(ThreadedEngineTest, TellsHowManyPagesItsStepsFaulted) {
  std::string job = kJob;
  job.replace(job.find("steps = 8"), 9, "steps = 200");
  EngineTeam team(job, 1);
  team.at(0).steps.reserve(1000);
  team.change(1, 1, {0});
  team.run_until([&] { return team.at(0).finished.has_value(); });
  std::printf("page faults in 198 steps, test code included: %llu\n",
              static_cast<unsigned long long>(team.at(0).finished->faults_after_warmup));
}

TEST(ThreadedEngineTest, AFenceEndsALoadThatWaitsForItsSource) {
  EngineTeam team(kJob, 2);
  team.change(1, 1, {0});
  run_until_step(team, 0, 2);
  auto held = team.settle({0, 1});
  const recovery::EpochPlan plan = team.plan(2, 1, {0, 1}, held);
  ASSERT_FALSE(plan.moves.empty());
  ThreadedEngine& waits = *team.at(1).engine;
  ASSERT_OK(team.wait(waits.prepare(plan, base::Rank(1))));
  ASSERT_OK(team.wait(team.at(0).engine->prepare(plan, base::Rank(0))));  // and never loads
  std::vector<std::string> order;
  const std::vector<protocol::RankAddress> addresses = {{base::Rank(0), {std::byte(1)}},
                                                        {base::Rank(1), {std::byte(1)}}};
  const auto tasks = [&](ThreadedEngine& engine, base::Rank rank) -> base::Task<base::Status> {
    if (rank == base::Rank(0)) {
      return [](ThreadedEngine& e,
                const std::vector<protocol::RankAddress>& a) -> base::Task<base::Status> {
        co_return (co_await e.load(a)).status();
      }(engine, addresses);
    }
    return [](ThreadedEngine& e) -> base::Task<base::Status> {
      co_await e.fence(base::Epoch(50));
      co_return base::Status::ok();
    }(*team.at(1).engine);
  };
  const auto results = team.wait_all<base::Status>({1, 1}, tasks);
  EXPECT_THAT(results[0], StatusIs(StatusCode::kAborted));
  EXPECT_OK(results[1]);
  EXPECT_EQ(waits.state().has_state, 0);
}

TEST(ThreadedEngineTest, WhatArrivedWholeCountsAsHeldInTheNextEpoch) {
  EngineTeam team(kJob, 2);
  team.change(1, 1, {0});
  run_until_step(team, 0, 2);
  auto held = team.settle({0, 1});
  const recovery::EpochPlan broken = team.plan(2, 1, {0, 1}, held);
  class Flip final : public base::FaultHandler {
   public:
    base::Status at_fault_point(std::string_view name, base::MutableByteSpan bytes) override {
      if (name == kEpochChunk && ++chunks_ == 12) bytes[0] ^= std::byte{1};
      return base::Status::ok();
    }
    int chunks_ = 0;  // only rank 0 sends
  } flip;
  {
    const base::ScopedFaultHandler armed(flip);
    EXPECT_THAT(team.load(broken, {0, 1})[1].status(),
                StatusIs(StatusCode::kDataLoss, HasSubstr("from rank 0")));
  }
  held = team.settle({0, 1});
  EXPECT_EQ(held[1].committed, held[0].committed);
  EXPECT_EQ(held[1].tensors.size(), 11u);
  EXPECT_EQ(held[1].vote, recovery::VoteId{}) << "the state came otherwise";
  EXPECT_EQ(team.plan(2, 1, {0, 1}, held).moves.size(), broken.moves.size() - 11);
  team.change(2, 1, {0, 1});
  expect_finished(team, {0, 1});
}

TEST(ThreadedEngineTest, APlanFromTheSeedBeginsAgainWhateverIsHeld) {
  EngineTeam team(kJob, 1);
  team.change(1, 1, {0});
  run_until_step(team, 0, 3);
  team.settle({0});
  const auto loaded = team.load(team.plan(1, 1, {0}, {{}}), {0});
  ASSERT_OK(loaded[0]);
  EXPECT_EQ(loaded[0].value().committed, recovery::CommittedState{});
  EXPECT_TRUE(team.at(0).engine->reports(base::Step(0)).empty());
  team.at(0).finished.reset();
  ASSERT_OK(team.at(0).engine->go());
  expect_finished(team, {0});
  EXPECT_EQ(team.at(0).engine->reports(base::Step(0)).size(), kSteps);
}

TEST(ThreadedEngineTest, AFailedGateLeavesTheStateForTheNextEpoch) {
  EngineTeam team(kJob, 2);
  team.change(2, 1, {0, 1});
  run_until_step(team, 0, 3);
  const auto held = team.settle({0, 1});
  class Gate final : public base::FaultHandler {
   public:
    base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
      return name == kEpochGate ? base::unavailable("struck") : base::Status::ok();
    }
  } gate;
  {
    const base::ScopedFaultHandler armed(gate);
    for (const auto& loaded : team.load(team.plan(1, 2, {0, 1}, held), {0, 1})) {
      EXPECT_THAT(loaded.status(), StatusIs(StatusCode::kUnavailable));
    }
  }
  EXPECT_THAT(team.at(0).engine->go(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(team.at(0).engine->state().tensors, held[0].tensors) << "nothing was dropped";
  team.change(1, 2, {1, 0});
  for (uint32_t w = 0; w < 2; ++w) {
    team.run_until([&] { return team.at(w).finished.has_value(); });
    EXPECT_LT(team.at(w).engine->state().tensors.size(), held[0].tensors.size()) << "now it is";
  }
  expect_finished(team, {0, 1});
}

TEST(ThreadedEngineTest, RefusesPlansThatAreNotLegalOrNotNew) {
  EngineTeam team(kJob, 1);
  ThreadedEngine& engine = *team.at(0).engine;
  const auto prepare = [&](const recovery::EpochPlan& plan, uint32_t rank = 0) {
    return team.wait(engine.prepare(plan, base::Rank(rank))).status();
  };
  const auto held = team.settle({0});
  const recovery::EpochPlan good = team.plan(1, 1, {0}, held);
  EXPECT_THAT(team.wait(engine.load({})).status(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(engine.go(), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(prepare(good, 1), StatusIs(StatusCode::kInvalidArgument));
  recovery::EpochPlan bad = good;
  bad.layout.pipelines[0].stages[0].layer_end = 1;
  EXPECT_THAT(prepare(bad), StatusIs(StatusCode::kInvalidArgument));
  bad = good;
  bad.layout.micro_batches = bad.layout.pipelines[0].micro_batch_end = 5;
  EXPECT_THAT(prepare(bad), StatusIs(StatusCode::kInvalidArgument, HasSubstr("this job")));
  bad = good;
  bad.resume.step = base::Step(3);
  EXPECT_THAT(prepare(bad), StatusIs(StatusCode::kInvalidArgument, HasSubstr("seed")));
  ASSERT_OK(prepare(good));
  EXPECT_THAT(prepare(good), StatusIs(StatusCode::kAborted));
  bad = good;
  bad.epoch = base::Epoch(9);
  EXPECT_THAT(prepare(bad), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not left")));
  // State that nobody brings.
  team.wait(engine.fence(base::Epoch(10)));
  bad.epoch = base::Epoch(10);
  bad.source = recovery::StateSource::kSurvivors;
  ASSERT_OK(prepare(bad));
  EXPECT_THAT(team.wait(engine.load({})).status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("does not hold")));
}

TEST(ThreadedEngineTest, LoadsOnlyWithTheAddressesOfItsPartners) {
  EngineTeam team(kJob, 2);
  ThreadedEngine& engine = *team.at(0).engine;
  const auto held = team.settle({0, 1});
  ASSERT_OK(team.wait(engine.prepare(team.plan(2, 1, {0, 1}, held), base::Rank(0))));
  const std::vector<protocol::RankAddress> own = {{base::Rank(0), {std::byte(1)}}};
  EXPECT_THAT(team.wait(engine.load(own)).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no address of rank 1")));
}

TEST(ThreadedEngineTest, RefusesVotesThatAreNotThePendingOne) {
  EngineTeam team(kJob, 1);
  ThreadedEngine& engine = *team.at(0).engine;
  EXPECT_THAT(engine.vote().status(), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(team.wait(engine.apply_vote({})), StatusIs(StatusCode::kFailedPrecondition));
  team.change(1, 1, {0});
  run_until_step(team, 0, 2);
  EXPECT_THAT(team.wait(engine.apply_vote({})), StatusIs(StatusCode::kFailedPrecondition));
  team.settle({0});
  const auto vote = engine.vote();
  ASSERT_OK(vote);
  EXPECT_EQ(vote.value().step, engine.state().committed.step);
  EXPECT_EQ(vote.value().id.epoch, base::Epoch(1));
  EXPECT_THAT(team.wait(engine.apply_vote(vote.value())),
              StatusIs(StatusCode::kFailedPrecondition));
}

TEST(ThreadedEngineTest, OpensOnceAndSaysWhatIsWrongWithAJob) {
  EngineTeam team(kJob, 1);
  EXPECT_THAT(team.wait(team.at(0).engine->open({.toml = kJob})).status(),
              StatusIs(StatusCode::kFailedPrecondition));
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  Member member;
  NoSnapshots snapshots;
  ThreadedEngine engine({.clock = clock, .fabrics = team.meshes(), .snapshots = snapshots},
                        io.get_executor());
  engine.listen(member);
  std::optional<base::Result<std::string>> opened;
  base::Gate gate;
  ASSERT_OK(
      base::spawn(io.get_executor(), gate,
                  base::store_result(engine.open({.toml = "[model]\nlayers = -1\n"}), opened)));
  while (!opened.has_value()) {
    io.restart();
    io.run_one();
  }
  EXPECT_THAT(opened->status(), StatusIs(StatusCode::kInvalidArgument));
}

TEST(ThreadedEngineTest, CloseEndsWhateverGoesOn) {
  std::string job = kJob;
  job.replace(job.find("steps = 8"), 9, "steps = 100000");
  EngineTeam team(job, 2);
  team.change(2, 1, {0, 1});
  run_until_step(team, 0, 1);
  const auto close = [](ThreadedEngine& engine) -> base::Task<bool> {
    co_await engine.close();
    co_await engine.close();
    co_return true;
  };
  EXPECT_TRUE(team.wait(close(*team.at(0).engine)));
  EXPECT_THAT(team.wait(team.at(0).engine->prepare({}, base::Rank(0))).status(),
              StatusIs(StatusCode::kCancelled));
  team.run_until([&] { return team.at(1).stopped.has_value(); });
}

TEST(ReportRingTest, KeepsTheNewestAndNoStepTwice) {
  auto ring = ReportRing::make(4);
  ASSERT_OK(ring);
  EXPECT_TRUE(ring.value().after(base::Step(0)).empty());
  for (const uint64_t step : {1, 2, 3, 3, 2, 4, 5, 6}) {
    ring.value().add({.step = base::Step(step)});
  }
  const auto all = ring.value().after(base::Step(0));
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all.front().step, base::Step(3));
  EXPECT_EQ(all.back().step, base::Step(6));
  EXPECT_EQ(ring.value().after(base::Step(5)).size(), 1u);
  ring.value().truncate(base::Step(4));
  ring.value().add({.step = base::Step(5), .loss = 2.0});
  EXPECT_EQ(ring.value().after(base::Step(0)).size(), 3u);
  EXPECT_EQ(ring.value().after(base::Step(4)).front().loss, 2.0);
  ring.value().truncate(base::Step(0));
  EXPECT_TRUE(ring.value().after(base::Step(0)).empty());
  ring.value().add({.step = base::Step(1)});
  EXPECT_EQ(ring.value().after(base::Step(0)).size(), 1u);
}

}  // namespace
}  // namespace perdure::runtime::worker
