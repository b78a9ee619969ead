#include "parallel/memory_plan.h"

#include "parallel/schedule_makers.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::LayerId;
using base::Rank;
using base::StatusCode;
using testing::grid;
using ::testing::HasSubstr;
using testing::small_model;
using testing::StatusIs;

// All tensors of these models are multiples of 16 floats: no padding hides a wrong count.
TEST(MemoryPlanTest, CountsStateByTheByte) {
  const ModelSpec model = small_model(Family::kLlama);
  const Layout layout = grid(model, {.pipelines = 2, .stages = 1, .micro_batches = 4});
  const WorkerMemory memory =
      plan_worker_memory(model, layout, make_schedule_1f1b(model, layout), Rank(1),
                         {.micro_batch = 2, .compute = ComputeType::kBF16},
                         {.accumulator_bytes_per_element = 8,
                          .snapshot_copies = 2,
                          .workspace_bytes = 1000,
                          .runtime_baseline_bytes = 50});
  const int64_t n = model.parameters();
  const int64_t vectors = (6 * 2 + 1) * 32;
  EXPECT_EQ(memory.parameters, 4 * n);
  EXPECT_EQ(memory.moments, 8 * n);
  EXPECT_EQ(memory.low_precision, 2 * (n - vectors));
  EXPECT_EQ(memory.gradient_accumulators, 8 * n);
  EXPECT_EQ(memory.gradient_grains, 0);
  EXPECT_EQ(memory.snapshots, 2 * 12 * n);
  EXPECT_EQ(memory.workspace, 1000);
  EXPECT_EQ(memory.runtime_baseline, 50);
}

TEST(MemoryPlanTest, BlocksAndGrainsAddTheirShare) {
  const ModelSpec model = small_model(Family::kLlama);
  const Layout layout = grid(model, {});
  const Schedule schedule = make_schedule_1f1b(model, layout);
  const NumericsMemory plain{.accumulator_bytes_per_element = 4};
  const NumericsMemory blocks{
      .accumulator_bytes_per_element = 4, .block_elements = 64, .grain_bytes_per_element = 4};
  const WorkerMemory a = plan_worker_memory(model, layout, schedule, Rank(0), {}, plain);
  const WorkerMemory b = plan_worker_memory(model, layout, schedule, Rank(0), {}, blocks);
  EXPECT_GE(b.gradient_accumulators - a.gradient_accumulators, model.parameters() / 64 * 6);
  EXPECT_EQ(b.gradient_grains, 4 * model.parameters());
}

TEST(MemoryPlanTest, ActivationsAreSlotsTimesLayers) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 4, .micro_batches = 8});
  const Schedule schedule = make_schedule_1f1b(model, layout);
  const BatchShape batch{.micro_batch = 2};
  for (uint32_t r = 0; r < 4; ++r) {
    const StagePlace& place = layout.stage(Rank(r));
    int64_t one_slot = 0;
    for (uint32_t l = place.layer_begin; l < place.layer_end; ++l) {
      const StagePosition position =
          l + 1 == place.layer_end ? StagePosition::kLastOfStage : StagePosition::kInner;
      for (const ActivationSpec& a : layer_activations(model, LayerId(l), batch, position)) {
        one_slot += a.buffer.bytes();
      }
    }
    const WorkerMemory memory = plan_worker_memory(model, layout, schedule, Rank(r), batch, {});
    EXPECT_EQ(memory.activations, one_slot * (4 - r));
    EXPECT_EQ(memory.boundary, (4 - r) * (2 * 16 * 32 * 4 + 2 * 2 * 16 * 4));
  }
}

TEST(MemoryPlanTest, SplitBackwardKeepsGradientsPerSlotAndLayer) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 1, .micro_batches = 1});
  Schedule schedule = make_schedule_1f1b(model, layout);
  const int64_t fused =
      plan_worker_memory(model, layout, schedule, Rank(0), {}, {}).activation_grads;
  std::vector<Instruction>& list = schedule.stages[0].instructions;
  ASSERT_EQ(list[1].action, Action::kBackward);
  list[1].action = Action::kBackwardInput;
  list.insert(list.begin() + 2, {.action = Action::kBackwardWeight, .micro_batch = {}});
  const int64_t split =
      plan_worker_memory(model, layout, schedule, Rank(0), {}, {}).activation_grads;
  EXPECT_EQ(split, 6 * fused);
}

TEST(MemoryPlanTest, ItemsSumToTheTotalAndTheLimitIsExplained) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {});
  const WorkerMemory memory =
      plan_worker_memory(model, layout, make_schedule_1f1b(model, layout), Rank(0), {}, {});
  int64_t sum = 0;
  for (const WorkerMemory::Item& item : memory.items()) sum += item.bytes;
  EXPECT_EQ(sum, memory.total());
  EXPECT_OK(check_worker_memory(memory, Rank(0), sum));
  EXPECT_THAT(check_worker_memory(memory, Rank(0), sum - 1),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("most go to")));
}

}  // namespace
}  // namespace perdure::parallel
