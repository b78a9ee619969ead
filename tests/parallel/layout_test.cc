#include "parallel/layout.h"

#include <algorithm>
#include <functional>
#include <set>

#include "parallel/rank_topology.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using base::StatusCode;
using base::TensorId;
using testing::grid;
using ::testing::HasSubstr;
using testing::small_model;
using testing::StatusIs;
using testing::unequal_layout;

TEST(LayoutTest, NumbersRanksPipelineByPipeline) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 3, .stages = 2, .micro_batches = 8});
  EXPECT_EQ(layout.ranks(), 6u);
  EXPECT_EQ(layout.place(Rank(3)).pipeline, base::PipelineId(1));
  EXPECT_EQ(layout.place(Rank(3)).stage, base::StageId(1));
  EXPECT_EQ(layout.stage(Rank(5)).layer_end, 8u);
  EXPECT_EQ(layout.pipeline(Rank(5)).micro_batch_end, 8u);
}

TEST(LayoutTest, SplitsMicroBatchesByGrains) {
  const ModelSpec model = small_model();
  const std::vector<double> costs = relative_layer_costs(model);
  ASSERT_OK_AND_ASSIGN(
      const Layout layout,
      make_layout(model, {.pipelines = 3, .stages = 1, .micro_batches = 14, .grain = 2}, costs));
  std::vector<uint32_t> counts;
  for (const PipelinePlace& p : layout.pipelines) {
    counts.push_back(p.micro_batch_end - p.micro_batch_begin);
  }
  EXPECT_EQ(counts, (std::vector<uint32_t>{6, 4, 4}));
}

TEST(LayoutTest, CutsLayersSoThatTheDearestStageIsCheap) {
  ModelConfig config = testing::small_config(Family::kLlama);
  config.layers = 30;
  config.vocabulary = 256;
  const ModelSpec model = make_model_spec(config).value();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 4, .micro_batches = 4});
  uint32_t layers = 0;
  for (const StagePlace& stage : layout.pipelines[0].stages) {
    layers += stage.layer_end - stage.layer_begin;
    EXPECT_LE(stage.layer_end - stage.layer_begin, 9u);
  }
  EXPECT_EQ(layers, 32u);
}

TEST(LayoutTest, MakeLayoutRefusesWhatCannotBe) {
  const ModelSpec model = small_model();
  const std::vector<double> costs = relative_layer_costs(model);
  const auto make = [&](const LayoutOptions& options) {
    return make_layout(model, options, costs);
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  EXPECT_THAT(make({.pipelines = 1, .stages = 9, .micro_batches = 9}),
              StatusIs(invalid, HasSubstr("9 stages need as many layers, the model has 8")));
  EXPECT_THAT(make({.pipelines = 3, .stages = 1, .micro_batches = 2}),
              StatusIs(invalid, HasSubstr("3 pipelines need as many grains")));
  EXPECT_THAT(make({.pipelines = 3, .stages = 1, .micro_batches = 8, .grain = 4}),
              StatusIs(invalid, HasSubstr("the step has 2")));
  EXPECT_THAT(make({.pipelines = 1, .stages = 1, .micro_batches = 5, .grain = 2}),
              StatusIs(invalid, HasSubstr("micro_batches (5) must be a multiple of grain (2)")));
  EXPECT_THAT(make({.pipelines = 0}), StatusIs(invalid, HasSubstr("at least 1")));
  EXPECT_THAT(make({.stages = 0}), StatusIs(invalid, HasSubstr("at least 1")));
  EXPECT_THAT(make({.micro_batches = 0}), StatusIs(invalid, HasSubstr("at least 1")));
  EXPECT_THAT(make({.grain = 0}), StatusIs(invalid, HasSubstr("at least 1")));
}

TEST(LayoutTest, CheckNamesWhatIsWrong) {
  const ModelSpec model = small_model();
  EXPECT_OK(check_layout(model, unequal_layout()));
  struct Case {
    std::function<void(Layout&)> spoil;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](Layout& l) { l.pipelines.clear(); }, "no pipeline"},
      {[](Layout& l) { l.pipelines[1].stages[0].rank = Rank(7); },
       "pipeline 1, stage 0 has rank 7, expected 3"},
      {[](Layout& l) { l.pipelines[0].stages[1].layer_begin = 3; },
       "stage 1 begins at layer 3, expected 2"},
      {[](Layout& l) { l.pipelines[0].stages[1].layer_end = 2; }, "stage 1 has no layer"},
      {[](Layout& l) { l.pipelines[2].stages[0].layer_end = 7; }, "holds 7 of 8 layers"},
      {[](Layout& l) { l.pipelines[1].micro_batch_begin = 5; }, "expected to begin at 4"},
      {[](Layout& l) { l.pipelines[0].micro_batch_end = 0; }, "at least one"},
      {[](Layout& l) { l.micro_batches = 10; }, "compute 9 of 10 micro-batches"},
  };
  for (const Case& c : cases) {
    Layout layout = unequal_layout();
    c.spoil(layout);
    EXPECT_THAT(check_layout(model, layout),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

TEST(LayoutTest, HoldersOfATiedTableSitOnBothEnds) {
  const ModelSpec model = small_model();
  const Layout layout = unequal_layout();
  const std::vector<Rank> ends{Rank(0), Rank(2), Rank(3), Rank(4), Rank(5)};
  EXPECT_EQ(layout.holders(model, TensorId(0)), ends);
  EXPECT_EQ(layout.speaker(model, TensorId(0)), Rank(0));
  const std::vector<TensorId> last = layout.tensors(model, Rank(2));
  EXPECT_EQ(last.front(), TensorId(0));
  EXPECT_TRUE(std::is_sorted(last.begin(), last.end()));
  EXPECT_EQ(std::set<TensorId>(last.begin(), last.end()).size(), last.size());
}

TEST(LayoutTest, UntiedTableIsHeldByFirstStagesOnly) {
  const ModelSpec model = small_model(Family::kGpt2, Embeddings::kUntied);
  EXPECT_EQ(unequal_layout().holders(model, TensorId(0)),
            (std::vector<Rank>{Rank(0), Rank(3), Rank(5)}));
}

std::vector<Layout> many_layouts(const ModelSpec& model) {
  std::vector<Layout> layouts{unequal_layout()};
  for (uint32_t pipelines = 1; pipelines <= 3; ++pipelines) {
    for (uint32_t stages = 1; stages <= 8; ++stages) {
      layouts.push_back(
          grid(model, {.pipelines = pipelines, .stages = stages, .micro_batches = 4}));
    }
  }
  return layouts;
}

void expect_buckets_agree(const ModelSpec& model, const Layout& layout) {
  std::vector<std::vector<ReduceBucket>> lists;
  for (uint32_t r = 0; r < layout.ranks(); ++r) lists.push_back(layout.buckets(model, Rank(r)));
  for (uint32_t r = 0; r < layout.ranks(); ++r) {
    // Each tensor of the rank is in exactly one bucket, neighbours in the rank's gradient memory.
    const std::vector<TensorId> mine = layout.tensors(model, Rank(r));
    std::set<TensorId> seen;
    for (const ReduceBucket& bucket : lists[r]) {
      const auto first = std::find(mine.begin(), mine.end(), bucket.tensors.front());
      ASSERT_NE(first, mine.end());
      ASSERT_LE(bucket.tensors.size(), static_cast<size_t>(mine.end() - first));
      EXPECT_TRUE(std::equal(bucket.tensors.begin(), bucket.tensors.end(), first));
      for (const TensorId id : bucket.tensors) {
        EXPECT_TRUE(seen.insert(id).second);
        EXPECT_EQ(layout.holders(model, id), bucket.holders);
      }
    }
    EXPECT_EQ(seen.size(), mine.size());
    // Any two ranks list what they share in the same order, with the same tensors.
    for (uint32_t other = 0; other < r; ++other) {
      std::vector<std::vector<TensorId>> here, there;
      for (const ReduceBucket& b : lists[r]) {
        if (std::count(b.holders.begin(), b.holders.end(), Rank(other))) here.push_back(b.tensors);
      }
      for (const ReduceBucket& b : lists[other]) {
        if (std::count(b.holders.begin(), b.holders.end(), Rank(r))) there.push_back(b.tensors);
      }
      EXPECT_EQ(here, there) << "ranks " << r << " and " << other;
    }
  }
}

TEST(LayoutTest, BucketsAgreeBetweenAllRanks) {
  for (const Embeddings embeddings : {Embeddings::kTied, Embeddings::kUntied}) {
    const ModelSpec model = small_model(Family::kGpt2, embeddings);
    for (const Layout& layout : many_layouts(model)) expect_buckets_agree(model, layout);
  }
}

TEST(LayoutTest, TiedEmbeddingsOnTwoStagesAreReducedOnce) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 2, .micro_batches = 2});
  for (const Rank rank : {Rank(0), Rank(1)}) {
    size_t shared = 0;
    for (const ReduceBucket& bucket : layout.buckets(model, rank)) {
      if (bucket.holders.size() < 2) continue;
      ++shared;
      EXPECT_EQ(bucket.tensors, (std::vector<TensorId>{TensorId(0)}));
    }
    EXPECT_EQ(shared, 1u);
  }
}

TEST(LayoutTest, BucketsRunFromTheLastLayersToTheFirst) {
  const ModelSpec model = small_model(Family::kLlama, Embeddings::kUntied);
  const std::vector<ReduceBucket> buckets = unequal_layout().buckets(model, Rank(5));
  ASSERT_EQ(buckets.size(), 4u);  // layers 6-7, 5, 2-4, 0-1
  for (size_t b = 0; b + 1 < buckets.size(); ++b) {
    EXPECT_GT(buckets[b].tensors.front(), buckets[b + 1].tensors.back());
  }
}

TEST(LayoutDeathTest, AskingForAForeignRankIsABug) {
  const Layout layout = unequal_layout();
  EXPECT_DEATH((void)layout.stage(Rank(6)), "rank 6 of 6");
}

TEST(RankTopologyTest, KnowsNeighboursAndBuckets) {
  const ModelSpec model = small_model();
  const JobTopology job = make_topology(model, unequal_layout());
  EXPECT_TRUE(job.at(Rank(0)).is_first());
  EXPECT_EQ(job.at(Rank(1)).previous, Rank(0));
  EXPECT_EQ(job.at(Rank(1)).next, Rank(2));
  EXPECT_TRUE(job.at(Rank(5)).is_first() && job.at(Rank(5)).is_last());
  EXPECT_EQ(job.at(Rank(4)).micro_batches(), 3u);
  for (uint32_t r = 0; r < 6; ++r) {
    EXPECT_EQ(job.at(Rank(r)).buckets.size(), unequal_layout().buckets(model, Rank(r)).size());
  }
}

}  // namespace
}  // namespace perdure::parallel
