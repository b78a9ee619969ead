// What is told of a layout: its runs, and who talks with whom.

#include <algorithm>

#include "parallel/layer_cost.h"
#include "parallel/layout_runs.h"
#include "parallel/rank_partners.h"
#include "tests/parallel/plan_fixtures.h"
#include "tests/testing/matchers.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using ::testing::ElementsAre;

using testing::grid;
using testing::small_model;

bool same(const std::vector<PipelinePlace>& a, const std::vector<PipelinePlace>& b) {
  const auto same_stage = [](const StagePlace& x, const StagePlace& y) {
    return x.rank == y.rank && x.layer_begin == y.layer_begin && x.layer_end == y.layer_end;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const auto& x, const auto& y) {
    return x.micro_batch_begin == y.micro_batch_begin && x.micro_batch_end == y.micro_batch_end &&
           std::equal(x.stages.begin(), x.stages.end(), y.stages.begin(), y.stages.end(),
                      same_stage);
  });
}

TEST(LayoutRunsTest, LikePipelinesAreOneRun) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {100, 2, 250});
  const LayoutRuns runs = runs_of(layout.pipelines);
  ASSERT_EQ(runs.runs.size(), 2u);  // of 3 micro-batches each, of 2
  EXPECT_EQ(runs.runs[0].count, 50u);
  EXPECT_OK(runs.check());
  EXPECT_TRUE(same(pipelines_of(runs), layout.pipelines));
}

TEST(LayoutRunsTest, AnyListComesBack) {
  const ModelSpec model = small_model();
  Layout layout = grid(model, {4, 2, 8});
  layout.pipelines[1].stages.clear();
  layout.pipelines[2].stages[1].rank = Rank(77);
  layout.pipelines[3].micro_batch_end = 1;
  EXPECT_TRUE(same(pipelines_of(runs_of(layout.pipelines)), layout.pipelines));
}

TEST(LayoutRunsTest, RefusesMoreThanCanBeMeant) {
  LayoutRuns runs = {.runs = {{PipelinePlace{}, 1u << 16}}};
  EXPECT_OK(runs.check());
  runs.runs.push_back({PipelinePlace{}, 1});
  EXPECT_THAT(runs.check(), testing::StatusIs(base::StatusCode::kDataLoss));
}

TEST(RankPartnersTest, AreSymmetricAndFewInALargeJob) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {500, 2, 1000});
  const auto partners = rank_partners(model, layout, {{base::TensorId(0), Rank(3), Rank(700)}});
  ASSERT_EQ(partners.size(), 1000u);
  for (uint32_t r = 0; r < partners.size(); ++r) {
    EXPECT_LE(partners[r].size(), 24u);
    for (const Rank other : partners[r]) {
      const auto& back = partners[other.value()];
      EXPECT_NE(other, Rank(r));
      EXPECT_TRUE(std::binary_search(back.begin(), back.end(), Rank(r)));
    }
  }
  EXPECT_TRUE(std::binary_search(partners[3].begin(), partners[3].end(), Rank(700)));
}

TEST(RankPartnersTest, TwoRanksKnowEachOther) {
  const ModelSpec model = small_model();
  const auto partners = rank_partners(model, grid(model, {2, 1, 2}), {});
  EXPECT_THAT(partners, ElementsAre(ElementsAre(Rank(1)), ElementsAre(Rank(0))));
}

}  // namespace
}  // namespace perdure::parallel
