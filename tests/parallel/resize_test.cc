// Which samples a job consumes does not depend on how many workers it has, nor on when it is
// resized.

#include <algorithm>

#include "parallel/replanner.h"
#include "parallel/sample_mark.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::NodeId;
using base::Rank;
using base::WorkerId;
using ::perdure::testing::small_model;

constexpr uint32_t kMicroBatches = 12;
constexpr uint64_t kSamplesPerMicroBatch = 2;
constexpr uint64_t kSamplesPerStep = kMicroBatches * kSamplesPerMicroBatch;

struct ResizeCase {
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t stages = 1;
};

class ResizeTest : public ::testing::Test {
 protected:
  // What the first stages of `layout` read in a step, in the order of their ranks.
  static void run_step(const Layout& layout, std::vector<uint64_t>& consumed) {
    const uint64_t first = consumed.size();
    for (const PipelinePlace& pipeline : layout.pipelines) {
      for (uint32_t m = pipeline.micro_batch_begin; m < pipeline.micro_batch_end; ++m) {
        for (uint64_t s = 0; s < kSamplesPerMicroBatch; ++s)
          consumed.push_back(first / kSamplesPerStep * kSamplesPerStep + m * kSamplesPerMicroBatch +
                             s);
      }
    }
  }
  ReplanInput input(uint32_t workers, uint32_t stages) const {
    ReplanInput in;
    in.model = &model_;
    in.target_pipelines = 8;
    in.target_stages = stages;
    in.micro_batches = kMicroBatches;
    in.layer_cost = relative_layer_costs(model_);
    for (uint32_t w = 0; w < workers; ++w)
      in.workers.push_back({.worker = WorkerId(w), .node = NodeId(w), .held = {}});
    return in;
  }
  // `from` workers do two steps, then `to` workers do two more.
  void expect_every_sample_once(const ResizeCase& c) const {
    ReplanInput before = input(c.from, c.stages);
    before.from_seed = true;
    ASSERT_OK_AND_ASSIGN(const auto first, replan(before));
    ReplanInput after = input(c.to, c.stages);
    after.old_layout = first[0].layout;
    after.old_workers = first[0].workers;
    for (uint32_t r = 0; r < first[0].workers.size(); ++r) {
      const uint32_t worker = first[0].workers[r].value();
      if (worker < c.to) after.workers[worker].held = first[0].layout.tensors(model_, Rank(r));
    }
    const auto second = replan(after);
    if (!second.is_ok()) {  // fewer workers than stages have state: said, not trained on
      EXPECT_THAT(second, testing::StatusIs(base::StatusCode::kDataLoss));
      EXPECT_LT(c.to, c.from);
      return;
    }
    // Every option, not only the best one: another policy may take it.
    for (const ReplanOption& option : *second) {
      std::vector<uint64_t> consumed;
      for (int i = 0; i < 2; ++i) run_step(first[0].layout, consumed);
      for (int i = 0; i < 2; ++i) run_step(option.layout, consumed);
      ASSERT_EQ(consumed.size(), 4 * kSamplesPerStep) << option.name;
      // The global batch of each step is the same set, whoever computes it.
      for (uint64_t step = 0; step < 4; ++step) {
        const auto begin = consumed.begin() + static_cast<int64_t>(step * kSamplesPerStep);
        std::sort(begin, begin + static_cast<int64_t>(kSamplesPerStep));
        for (uint64_t i = 0; i < kSamplesPerStep; ++i)
          ASSERT_EQ(consumed[step * kSamplesPerStep + i], step * kSamplesPerStep + i)
              << option.name;
      }
    }
  }
  const ModelSpec model_ = small_model();
};

TEST_F(ResizeTest, AnyNumberOfWorkersToAnyOtherUsesEverySampleOnce) {
  for (const uint32_t stages : {1u, 2u, 3u}) {
    for (uint32_t from = 1; from <= 12; ++from) {
      for (uint32_t to = 1; to <= 12; ++to) {
        SCOPED_TRACE(std::to_string(from) + " -> " + std::to_string(to) + " workers, " +
                     std::to_string(stages) + " stages");
        ASSERT_NO_FATAL_FAILURE(
            expect_every_sample_once({.from = from, .to = to, .stages = stages}));
      }
    }
  }
}

TEST_F(ResizeTest, ASampleThatIsLeftOutOrReadTwiceChangesTheMarks) {
  const uint64_t whole = sample_marks(100, 24);
  for (uint64_t i = 100; i < 124; ++i) {
    EXPECT_NE(whole - sample_mark(i), whole);
    EXPECT_NE(whole + sample_mark(i), whole);
    EXPECT_NE(whole - sample_mark(i) + sample_mark(i + 24), whole);
  }
}

}  // namespace
}  // namespace perdure::parallel
