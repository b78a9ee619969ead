// Generators of schedules and the step simulator.
#include "parallel/schedule.h"

#include <algorithm>

#include "parallel/rank_topology.h"
#include "parallel/schedule_check.h"
#include "parallel/schedule_makers.h"
#include "parallel/step_simulator.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using testing::grid;
using testing::small_model;
using testing::unequal_layout;

StageTimes unit_times() { return {.forward = 1.0, .backward_input = 1.0, .backward_weight = 1.0}; }

struct Oracle {
  uint32_t stages;
  uint32_t micro_batches;
  double makespan;
};

TEST(StepSimulatorTest, OneForwardOneBackwardTakesWhatTheoryTells) {
  const ModelSpec model = small_model();
  for (const Oracle& o : std::vector<Oracle>{{2, 4, 15},
                                             {3, 6, 24},
                                             {4, 8, 33},
                                             {4, 13, 48},
                                             {6, 12, 51},
                                             {8, 16, 69},
                                             {8, 32, 117}}) {
    const Layout layout =
        grid(model, {.pipelines = 1, .stages = o.stages, .micro_batches = o.micro_batches});
    const Schedule schedule = make_schedule_1f1b(model, layout);
    const StepEstimate estimate =
        simulate_step(model, layout, schedule, std::vector<StageTimes>(o.stages, unit_times()));
    EXPECT_EQ(estimate.makespan, o.makespan) << o.stages << " stages";
    EXPECT_EQ(estimate.busy[0], 3.0 * o.micro_batches);
    EXPECT_EQ(estimate.compute_end[0], o.makespan);  // the first stage ends last
    EXPECT_NEAR(estimate.idle_fraction(), 1.0 - 3.0 * o.micro_batches / o.makespan, 1e-12);
  }
}

TEST(StepSimulatorTest, MessagesAndCollectivesTakeTime) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 2, .micro_batches = 1});
  StageTimes times = unit_times();
  times.send_activation = 0.5;
  times.send_gradient = 0.25;
  times.vote = 2.0;
  times.apply = 4.0;
  times.reduce.assign(2, 8.0);  // both ranks: the tied table, and what is theirs alone
  const StepEstimate estimate =
      simulate_step(model, layout, make_schedule_1f1b(model, layout), {times, times});
  EXPECT_EQ(estimate.makespan, 1 + 0.5 + 1 + 2 + 0.25 + 2 + 2 * 8 + 2 + 4);
}

TEST(StepSimulatorTest, EstimatesTimesOfUnequalPipelines) {
  const ModelSpec model = small_model();
  const Layout layout = unequal_layout();
  const ClusterSpec cluster{.nodes = 3, .devices_per_node = 2};
  const std::vector<StageTimes> times =
      estimate_times(model, layout, cluster, {.batch = {.micro_batch = 2}});
  ASSERT_EQ(times.size(), 6u);
  EXPECT_GT(times[1].forward, times[0].forward);
  EXPECT_EQ(times[5].send_activation, 0.0);
  EXPECT_GT(times[0].send_activation, 0.0);
  EXPECT_GT(times[2].send_gradient, times[1].send_gradient);  // rank 2 is on another node
  const StepEstimate estimate =
      simulate_step(model, layout, make_schedule_1f1b(model, layout), times);
  EXPECT_GT(estimate.makespan, 0.0);
  EXPECT_GT(estimate.idle_fraction(), 0.0);
  EXPECT_LT(estimate.idle_fraction(), 1.0);
}

TEST(StepSimulatorDeathTest, AnIllegalScheduleIsABug) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 2, .micro_batches = 1});
  Schedule schedule = make_schedule_1f1b(model, layout);
  schedule.stages[0].instructions.erase(schedule.stages[0].instructions.begin() + 1);
  const std::vector<StageTimes> times(2, unit_times());
  EXPECT_DEATH((void)simulate_step(model, layout, schedule, times), "check failed");
}

TEST(Schedule1F1BTest, LooksLikeThePaper) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 3, .micro_batches = 3});
  const Schedule schedule = make_schedule_1f1b(model, layout);
  EXPECT_EQ(to_string(schedule.stages[1]),
            "rank 1: recv act 0, F0, send act 0, recv act 1, F1, send act 1, "
            "recv grad 0, B0, send grad 0, recv act 2, F2, send act 2, "
            "recv grad 1, B1, send grad 1, recv grad 2, B2, send grad 2, "
            "reduce 0, vote, apply");
}

TEST(Schedule1F1BTest, InstructionsHaveNames) {
  EXPECT_EQ(
      to_string(Instruction{.action = Action::kBackwardInput, .micro_batch = base::MicroBatch(3)}),
      "I3");
  EXPECT_EQ(
      to_string(Instruction{.action = Action::kBackwardWeight, .micro_batch = base::MicroBatch(3)}),
      "W3");
  EXPECT_EQ(to_string(Instruction{.action = Action::kReduce, .micro_batch = {}, .index = 2}),
            "reduce 2");
}

TEST(Schedule1F1BTest, IsLegalForManyShapesWithPostedSends) {
  for (const Embeddings embeddings : {Embeddings::kTied, Embeddings::kUntied}) {
    const ModelSpec model = small_model(Family::kLlama, embeddings);
    for (uint32_t pipelines = 1; pipelines <= 3; ++pipelines) {
      for (uint32_t stages = 1; stages <= 8; ++stages) {
        for (uint32_t m = pipelines; m <= 12; ++m) {
          const Layout layout =
              grid(model, {.pipelines = pipelines, .stages = stages, .micro_batches = m});
          const Schedule schedule = make_schedule_1f1b(model, layout);
          EXPECT_OK(check_schedule(model, layout, schedule, SendModel::kRendezvous));
          EXPECT_OK(check_schedule(model, layout, schedule, SendModel::kEager));
        }
      }
    }
  }
}

TEST(Schedule1F1BTest, IsLegalForUnequalPipelines) {
  for (const Embeddings embeddings : {Embeddings::kTied, Embeddings::kUntied}) {
    const ModelSpec model = small_model(Family::kGpt2, embeddings);
    const Layout layout = unequal_layout();
    EXPECT_OK(check_schedule(model, layout, make_schedule_1f1b(model, layout)));
  }
}

TEST(Schedule1F1BTest, FewerMicroBatchesThanStagesWork) {
  const ModelSpec model = small_model();
  for (uint32_t m = 1; m <= 4; ++m) {
    const Layout layout = grid(model, {.pipelines = 1, .stages = 4, .micro_batches = m});
    const Schedule schedule = make_schedule_1f1b(model, layout);
    ASSERT_OK(check_schedule(model, layout, schedule));
    const StepEstimate estimate =
        simulate_step(model, layout, schedule, std::vector<StageTimes>(4, unit_times()));
    EXPECT_EQ(estimate.makespan, 3.0 * (m + 3));
  }
}

TEST(Schedule1F1BTest, KeepsMinOfMicroBatchesAndStagesLeft) {
  const ModelSpec model = small_model();
  for (uint32_t m = 1; m <= 9; ++m) {
    const Layout layout = grid(model, {.pipelines = 1, .stages = 5, .micro_batches = m});
    const Schedule schedule = make_schedule_1f1b(model, layout);
    for (uint32_t s = 0; s < 5; ++s) {
      EXPECT_EQ(schedule.stages[s].stash_slots, std::min(m, 5 - s));
    }
  }
}

}  // namespace
}  // namespace perdure::parallel
