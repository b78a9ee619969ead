// Tensors move while a job changes its layout; the bits are those of a run that nothing disturbed.

#include "runtime/worker/epoch_phases.h"
#include "runtime/worker/state_transfer.h"
#include "tests/runtime/engine/survivors.h"

namespace perdure::runtime::worker {
namespace {

using base::StatusCode;
using engine::EngineOptions;
using engine::Strike;
using engine::Survivor;
using engine::Survivors;
using parallel::TensorMove;
using ::perdure::testing::IsOk;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

engine::TrainJob small_job(uint32_t steps) {
  engine::TrainJob job;
  job.model = engine::tiny_model(parallel::Family::kLlama);
  job.model.layers = 3;
  job.numerics.width_bits = 32;
  job.numerics.block_elements = 64;
  job.steps = steps;
  return job;
}

struct Change {
  uint32_t pipelines;
  uint32_t stages;
  std::vector<uint32_t> members;  // workers, by rank
  uint32_t steps;                 // committed at its end
};

// The newest state of all workers, and what moves so that the members have what they need.
struct Plan {
  engine::CommittedScalars resume;
  std::vector<TensorMove> moves;
};

Plan make_plan(Survivors& world, const Change& change) {
  Plan plan;
  for (uint32_t w = 0; w < world.size(); ++w) {
    const engine::TensorStore& store = world.at(w).memory->tensors;
    if (store.has_state() && store.committed().step >= plan.resume.step) {
      plan.resume = store.committed();
    }
  }
  engine::TrainJob job = world.job();
  job.pipelines = change.pipelines;
  job.stages = change.stages;
  const auto holds = [&](uint32_t rank, base::TensorId id) {
    const engine::TensorStore& store = world.at(change.members[rank]).memory->tensors;
    return store.has_state() && store.committed() == plan.resume && store.holds(id);
  };
  const EngineOptions options = engine_options(job, base::Rank(0));
  for (uint32_t t = 0; t < options.model.tensors.size(); ++t) {
    const base::TensorId id(t);
    std::vector<uint32_t> sources;
    for (uint32_t r = 0; r < options.layout.ranks(); ++r) {
      if (holds(r, id)) sources.push_back(r);
    }
    for (const base::Rank to : options.layout.holders(options.model, id)) {
      if (holds(to.value(), id)) continue;
      CHECK(!sources.empty()) << "tensor " << id << " is lost";
      plan.moves.push_back({id, base::Rank(sources[t % sources.size()]), to});
    }
  }
  return plan;
}

// Runs one epoch; gives the number of tensors that moved.
size_t run(Survivors& world, const Change& change) {
  const Plan plan = make_plan(world, change);
  world.set_members(change.members);
  world.run_epoch(
      change.pipelines, change.stages, change.steps, [&](Survivor& s, const EngineOptions&) {
        s.memory->tensors.resume_at(plan.resume);
        return transfer_state({.moves = plan.moves}, s.memory->tensors, *s.fabric).status();
      });
  return plan.moves.size();
}

TEST(EpochChangeTest, AnySequenceOfLayoutsGivesTheDigestsOfAnUndisturbedRun) {
  constexpr uint32_t kSteps = 12;
  for (const auto compute : {parallel::ComputeType::kF32, parallel::ComputeType::kBF16}) {
    engine::TrainJob job = small_job(kSteps);
    job.batch.compute = compute;
    const engine::TrainTrace expected = train(job);
    Survivors world(job, 4);
    world.run_epoch(2, 2, 2);
    world.lose(0);
    // Two stages swap their workers; one that was left behind joins; all hold all; one is alone; a
    // fresh one and two that are behind join it.
    EXPECT_GT(run(world, {1, 2, {3, 2}, 4}), 0u);
    EXPECT_GT(run(world, {1, 3, {1, 2, 3}, 6}), 0u);
    EXPECT_GT(run(world, {3, 1, {1, 2, 3}, 6}), 0u) << "without a step";
    EXPECT_EQ(run(world, {3, 1, {3, 1, 2}, 8}), 0u) << "ranks change, nothing moves";
    EXPECT_EQ(run(world, {1, 1, {2}, 9}), 0u);
    EXPECT_GT(run(world, {2, 2, {3, 0, 1, 2}, kSteps}), 0u);
    for (uint32_t w = 0; w < 4; ++w) EXPECT_OK(world.at(w).status);
    const auto digests = world.digests();
    ASSERT_EQ(digests.size(), kSteps);
    for (uint64_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(digests.at(step), expected.digests[step]) << "step " << step;
    }
  }
}

class TransferTest : public ::testing::Test {
 protected:
  // Worker 0 holds all, from the seed; worker 1 nothing. The token table has 8 chunks.
  TransferTest() : world_(job(), 3) {
    world_.run_epoch(1, 1, 0);
    for (uint32_t t = 0; t < model().tensors.size(); ++t) {
      moves_.push_back({base::TensorId(t), base::Rank(0), base::Rank(1)});
    }
  }
  static engine::TrainJob job() {
    engine::TrainJob job = small_job(1);
    job.model.vocabulary = 20000;
    return job;
  }
  const parallel::ModelSpec& model() { return store(0).model(); }
  engine::TensorStore& store(uint32_t worker) { return world_.at(worker).memory->tensors; }

  // Two pipelines without a step.
  void transfer(std::vector<TensorMove> moves) {
    world_.run_epoch(2, 1, 0, [&](Survivor& s, const EngineOptions&) {
      s.memory->tensors.resume_at({});
      const auto received = transfer_state({.moves = moves}, s.memory->tensors, *s.fabric);
      if (received.is_ok() && s.fabric->rank() == base::Rank(1)) received_ = received.value();
      return received.status();
    });
  }

  Survivors world_;
  std::vector<TensorMove> moves_;
  uint64_t received_ = 0;
};

TEST_F(TransferTest, MovesEveryTensorAndCountsItsBytes) {
  transfer(moves_);
  ASSERT_OK(world_.at(1).status);
  EXPECT_EQ(store(1).digests(), store(0).digests());
  uint64_t bytes = 0;
  for (const TensorMove& move : moves_) bytes += store(0).wire_bytes(move.tensor);
  EXPECT_EQ(received_, bytes);
}

TEST_F(TransferTest, AChangedChunkIsNamedAndWholeTensorsStay) {
  std::reverse(moves_.begin(), moves_.end());  // the token table, tensor 0, is last
  const size_t before = moves_.size() - 1;
  const auto sent = static_cast<uint32_t>(before + 3);  // the others have a chunk each
  Strike strike({.point = kEpochChunk, .rank = 0, .nth = sent}, [](base::MutableByteSpan bytes) {
    bytes[1000] ^= std::byte{4};
    return base::Status::ok();
  });
  {
    const base::ScopedFaultHandler armed(strike);
    transfer(moves_);
  }
  ASSERT_TRUE(strike.has_struck());
  EXPECT_THAT(world_.at(1).status,
              StatusIs(StatusCode::kDataLoss,
                       AllOf(HasSubstr("tensor 0 ("), HasSubstr("chunk 2 from rank 0"))));
  // The source may have sent the last chunk before it hears of the changed one.
  EXPECT_THAT(world_.at(0).status, AnyOf(IsOk(), StatusIs(StatusCode::kUnavailable)));
  EXPECT_EQ(store(1).digests().size(), before);
  EXPECT_FALSE(store(1).holds(base::TensorId(0)));
  EXPECT_TRUE(store(1).has_state());

  transfer({moves_.back()});  // what is whole need not come again
  ASSERT_OK(world_.at(1).status);
  EXPECT_EQ(store(1).digests(), store(0).digests());
}

TEST_F(TransferTest, ASourceThatIsLostInTheMiddleLeavesWholeTensors) {
  Strike strike({.point = kEpochChunk, .rank = 0, .nth = 12}, [&](base::MutableByteSpan) {
    world_.at(0).fabric->abort(base::aborted("struck"));
    return base::Status::ok();
  });
  {
    const base::ScopedFaultHandler armed(strike);
    transfer(moves_);
  }
  ASSERT_TRUE(strike.has_struck());
  EXPECT_THAT(world_.at(1).status, StatusIs(StatusCode::kUnavailable, HasSubstr("from rank 0")));
  EXPECT_THAT(world_.at(0).status, StatusIs(StatusCode::kAborted));
  const auto held = store(1).digests();
  EXPECT_LT(held.size(), moves_.size());
  for (const engine::TensorDigest& t : held) EXPECT_EQ(t.digest, store(0).held(t.tensor).digest);

  // What is kept does not count for another step.
  store(1).resume_at({.step = base::Step(5)});
  EXPECT_FALSE(store(1).has_state());
}

TEST_F(TransferTest, APointThatFailsEndsItOnAll) {
  for (const std::string_view point : {kEpochTransfer, kEpochServe}) {
    Strike strike({.point = point, .rank = 0},
                  [](base::MutableByteSpan) { return base::unavailable("struck"); });
    const base::ScopedFaultHandler armed(strike);
    transfer(moves_);
    EXPECT_THAT(world_.at(0).status, StatusIs(StatusCode::kUnavailable, HasSubstr("struck")));
    EXPECT_THAT(world_.at(1).status, StatusIs(StatusCode::kUnavailable));
    EXPECT_FALSE(store(1).has_state());
  }
}

TEST_F(TransferTest, RefusesToSendWhatIsNotHeldAndToReceiveTwice) {
  std::vector<TensorMove> moves = {{base::TensorId(1), base::Rank(1), base::Rank(0)}};
  transfer(moves);
  EXPECT_THAT(world_.at(1).status,
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("tensor 1 (")));
  EXPECT_FALSE(world_.at(0).status.is_ok());
  transfer({moves_[2], moves_[2]});
  EXPECT_THAT(world_.at(1).status, StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_EQ(store(0).digests().size(), moves_.size()) << "the source keeps what it had";
}

TEST_F(TransferTest, MemoryOfDroppedTensorsIsUsedAgain) {
  transfer(moves_);
  ASSERT_OK(world_.at(1).status);
  const size_t bytes = store(1).allocated_bytes();
  for (int i = 0; i < 3; ++i) {
    store(1).retain({});
    transfer(moves_);
    ASSERT_OK(world_.at(1).status);
  }
  EXPECT_EQ(store(1).allocated_bytes(), bytes);
}

}  // namespace
}  // namespace perdure::runtime::worker
