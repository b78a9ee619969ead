// Snapshots that outlive the processes which took them, with real engines.

#include "runtime/worker/slab_keeper.h"

#include "base/fault_point.h"
#include "recovery/restore_choice.h"
#include "tests/runtime/worker/engine_team.h"

namespace perdure::runtime::worker {
namespace {

using base::StatusCode;
using ::perdure::testing::StatusIs;
using recovery::StateOffer;
using recovery::ToldState;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kJob = R"([model]
family = "llama"
layers = 2
width = 32
heads = 2
vocabulary = 256
context = 16
[data]
synthetic_tokens = 4096
[batch]
micro_batches = 4
[numerics]
width = 32
block = 64
[run]
steps = 8
step_timeout_s = 20
)";
constexpr uint64_t kSteps = 8;

// The memory of one node, with one worker.
struct NodeMemory {
  std::array<base::SharedMemory, 2> slots;
  base::SharedMemory reports;
  std::unique_ptr<SlabKeeper> keeper;  // of the process that lives
};

// Lets no rank begin this step, and says so.
class StopBefore final : public base::FaultHandler {
 public:
  explicit StopBefore(uint64_t step) : step_(step) {}
  base::Status at_fault_point(std::string_view name, base::MutableByteSpan) override {
    if (name == "step.begin" && base::fault_time.step.load() == step_) ++waiting;
    while (name == "step.begin" && base::fault_time.step.load() == step_ && !released)
      released.wait(false);
    return base::Status::ok();
  }
  void release() {
    released = true;
    released.notify_all();
  }
  std::atomic<int> waiting{0};
  std::atomic<bool> released{false};

 private:
  const uint64_t step_;
};

class SlabKeeperTest : public ::testing::Test {
 protected:
  explicit SlabKeeperTest(const std::string& more = "") : team_(std::string(kJob) + more, 4) {
    for (NodeMemory& node : nodes_) {
      for (base::SharedMemory& slot : node.slots) slot = base::SharedMemory::make("slot").value();
      node.reports = base::SharedMemory::make("reports").value();
    }
    team_.set_snapshots([this](uint32_t worker) -> SnapshotKeeper& {
      NodeMemory& node = nodes_[worker];
      const SlabKeeperOptions options{.own_slots = {node.slots[0].path(), node.slots[1].path()},
                                      .other_slots = {},
                                      .reports = node.reports.path()};
      node.keeper = SlabKeeper::open(options, clock_).value();
      return *node.keeper;
    });
    for (uint32_t w = 0; w < 4; ++w) team_.lose(w);
  }

  // All have committed the step before, and have a snapshot of it; then their processes are left.
  void run_to(uint64_t step) {
    StopBefore stop(step);
    const base::ScopedFaultHandler armed(stop);
    team_.change(2, 2, {0, 1, 2, 3});
    while (stop.waiting < 4) std::this_thread::yield();
    for (uint32_t w = 0; w < 4; ++w) team_.at(w).engine->abort(base::aborted("test"));
    stop.release();
    states_ = team_.settle({0, 1, 2, 3});
  }
  std::vector<ToldState> told(const std::vector<uint32_t>& workers) {
    std::vector<ToldState> result;
    for (const uint32_t w : workers) {
      ThreadedEngine& engine = *team_.at(w).engine;
      ToldState t{base::WorkerId(w), team_.wait(engine.fence(team_.epoch()))};
      t.state.offers = team_.wait(engine.offers());
      result.push_back(std::move(t));
    }
    return result;
  }
  // As the coordinator does it. Gives what was bad.
  std::vector<std::string> bring_back(const std::vector<uint32_t>& workers,
                                      uint64_t expected_step) {
    const auto choice = choose_restore(team_.model(), told(workers), std::nullopt);
    EXPECT_TRUE(choice.has_value());
    if (!choice.has_value()) return {};
    EXPECT_EQ(choice->target.step, base::Step(expected_step));
    std::vector<std::string> bad;
    for (const uint32_t w : workers) {
      const auto loads = choice->loads.find(base::WorkerId(w));
      const auto wanted =
          loads == choice->loads.end() ? std::vector<recovery::TensorDigest>() : loads->second;
      const auto restored = team_.wait(team_.at(w).engine->restore(choice->target, wanted));
      bad.insert(bad.end(), restored.bad_sources.begin(), restored.bad_sources.end());
    }
    return bad;
  }
  void expect_the_end_of_an_undisturbed_run(const std::vector<uint32_t>& workers) {
    EngineTeam calm(kJob, 1);
    calm.change(1, 1, {0});
    calm.run_until([&] { return calm.at(0).finished.has_value(); });
    for (const uint32_t w : workers) {
      team_.run_until([&] { return team_.at(w).finished.has_value(); });
      EXPECT_EQ(team_.at(w).finished->state_digest, calm.at(0).finished->state_digest);
      EXPECT_EQ(team_.at(w).finished->step, base::Step(kSteps));
    }
  }
  void flip_a_bit(base::SharedMemory& slot, size_t at) { slot.map(0).value()[at] ^= std::byte{16}; }
  // Of the two slots of a worker, the one with this step.
  base::SharedMemory& slot_of(uint32_t worker, uint64_t step) {
    for (base::SharedMemory& slot : nodes_[worker].slots) {
      const auto record = checkpoint::read_slot(slot.map(0).value());
      if (record.is_ok() && record->step == step) return slot;
    }
    CHECK(false) << "no snapshot of step " << step;
  }

  boost::asio::io_context io_;
  base::PosixClock clock_{io_.get_executor()};
  std::array<NodeMemory, 4> nodes_;
  EngineTeam team_;
  std::vector<recovery::StateReport> states_;
};

TEST_F(SlabKeeperTest, AllHoldersOfAStageComeBackAndNoStepIsLost) {
  run_to(5);
  const auto before = team_.at(1).engine->reports(base::Step(0));
  team_.lose(1);
  team_.lose(3);
  EXPECT_EQ(team_.at(1).engine->reports(base::Step(0)).size(), before.size())
      << "what a process has reported outlives it";
  EXPECT_THAT(bring_back({0, 1, 2, 3}, 4), IsEmpty());
  team_.change(2, 2, {0, 1, 2, 3});
  expect_the_end_of_an_undisturbed_run({0, 1, 2, 3});
}

TEST_F(SlabKeeperTest, AllProcessesComeBackInAnotherLayout) {
  run_to(6);
  for (uint32_t w = 0; w < 4; ++w) team_.lose(w);
  EXPECT_THAT(bring_back({0, 1, 2, 3}, 5), IsEmpty());
  team_.change(1, 4, {3, 1, 0, 2});
  expect_the_end_of_an_undisturbed_run({0, 1, 2, 3});
}

// Killed while a snapshot was taken: that one is gone, the one before is there.
TEST_F(SlabKeeperTest, AHalfTakenSnapshotIsNone) {
  run_to(5);
  base::SharedMemory& slot = slot_of(1, 4);
  const auto record = checkpoint::read_slot(slot.map(0).value()).value();
  std::vector<checkpoint::SlotTensor> tensors;
  for (const auto& t : record.tensors) tensors.push_back({t.tensor, 0, t.parts});
  const checkpoint::SlotWriter torn(slot.map(0).value(),
                                    checkpoint::plan_slot(std::move(tensors)).value());
  team_.lose(1);
  team_.lose(3);
  // Worker 3 still has step 4 of the same stage.
  EXPECT_THAT(bring_back({0, 1, 2, 3}, 4), IsEmpty());
  team_.lose(3);
  for (base::SharedMemory& other : nodes_[3].slots) flip_a_bit(other, 8);  // version: not usable
  team_.lose(1);
  EXPECT_THAT(bring_back({0, 1, 2, 3}, 3), IsEmpty());
  team_.change(2, 2, {0, 1, 2, 3});
  expect_the_end_of_an_undisturbed_run({0, 1, 2, 3});
}

TEST_F(SlabKeeperTest, AFlippedBitIsFoundNamedAndTheNextSourceTaken) {
  run_to(5);
  team_.lose(1);
  team_.lose(3);
  base::SharedMemory& slot = slot_of(1, 4);
  const auto record = checkpoint::read_slot(slot.map(0).value()).value();
  for (const checkpoint::SlotTensor& tensor : record.tensors) {
    const checkpoint::SlotPart& part = tensor.parts.front();
    flip_a_bit(slot, checkpoint::kSlotPage + part.offset + part.bytes / 2);
  }
  const auto bad = bring_back({0, 1, 2, 3}, 4);
  ASSERT_FALSE(bad.empty());  // what worker 1 was to read; the rest was read elsewhere
  EXPECT_THAT(bad[0], HasSubstr("of step 4"));
  EXPECT_THAT(bad[0], HasSubstr("has changed since it was kept"));
  EXPECT_THAT(bring_back({0, 1, 2, 3}, 4), IsEmpty()) << "from the other pipeline's node";
  team_.change(2, 2, {0, 1, 2, 3});
  expect_the_end_of_an_undisturbed_run({0, 1, 2, 3});
}

TEST_F(SlabKeeperTest, TheTwoNewestStatesAreThere) {
  run_to(5);
  const std::vector<StateOffer> offers = team_.wait(team_.at(0).engine->offers());
  ASSERT_EQ(offers.size(), 2u);
  EXPECT_EQ(offers[0].committed.step, base::Step(4));
  EXPECT_EQ(offers[1].committed.step, base::Step(3));
  EXPECT_EQ(offers[0].committed, states_[0].committed);
  EXPECT_EQ(offers[0].tensors, states_[0].tensors);
  const SnapshotKeeper::Cost cost = nodes_[0].keeper->cost();
  EXPECT_EQ(cost.taken, 5u);  // one before the first step
  EXPECT_EQ(cost.skipped, 0u);
}

class SeldomTest : public SlabKeeperTest {
 protected:
  SeldomTest() : SlabKeeperTest("[checkpoint]\nmemory_every = 3\n") {}
};

TEST_F(SeldomTest, SnapshotsOfEveryThirdStepTakeTheJobBackToOne) {
  run_to(6);
  team_.lose(1);
  team_.lose(3);
  EXPECT_THAT(bring_back({0, 1, 2, 3}, 3), IsEmpty());
  team_.change(2, 2, {0, 1, 2, 3});
  expect_the_end_of_an_undisturbed_run({0, 1, 2, 3});
}

class NoMemoryTest : public SlabKeeperTest {
 protected:
  NoMemoryTest() : SlabKeeperTest("[checkpoint]\nmemory_bytes = 1000\n") {}
};

TEST_F(NoMemoryTest, WhatDoesNotFitIsSkippedAndTrainingGoesOn) {
  run_to(3);
  EXPECT_THAT(team_.wait(team_.at(0).engine->offers()), IsEmpty());
  EXPECT_EQ(nodes_[0].keeper->cost().taken, 0u);
  EXPECT_EQ(nodes_[0].keeper->cost().skipped, 3u);
  team_.change(2, 2, {0, 1, 2, 3});
  expect_the_end_of_an_undisturbed_run({0, 1, 2, 3});
}

TEST(SlabKeeperOpenTest, WithoutTheAgentsMemoryItDoesNotOpen) {
  boost::asio::io_context io;
  base::PosixClock clock(io.get_executor());
  SlabKeeperOptions options{
      .own_slots = {"/proc/self/fd/9999", "/proc/self/fd/9998"}, .other_slots = {}, .reports = ""};
  EXPECT_THAT(SlabKeeper::open(options, clock), StatusIs(StatusCode::kNotFound));
}

}  // namespace
}  // namespace perdure::runtime::worker
