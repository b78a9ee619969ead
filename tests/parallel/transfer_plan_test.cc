#include "parallel/transfer_plan.h"

#include <algorithm>
#include <set>

#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using base::TensorId;
using ::perdure::testing::below;
using ::perdure::testing::grid;
using ::perdure::testing::small_model;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::vector<TensorId>> all_needs(const ModelSpec& model, const Layout& layout) {
  std::vector<std::vector<TensorId>> needs;
  for (uint32_t r = 0; r < layout.ranks(); ++r) needs.push_back(layout.tensors(model, Rank(r)));
  return needs;
}

TEST(TransferPlanTest, NothingMovesWhenAllIsThere) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 2, .stages = 3, .micro_batches = 4});
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan,
                       make_transfer_plan(model, layout, all_needs(model, layout)));
  EXPECT_TRUE(plan.moves.empty());
  EXPECT_EQ(plan.bytes, 0);
  EXPECT_EQ(plan.busiest_rank_bytes, 0);
}

TEST(TransferPlanTest, ANewRankGetsItsStageFromTheOtherReplica) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 2, .stages = 2, .micro_batches = 4});
  auto held = all_needs(model, layout);
  const std::vector<TensorId> need = held[3];
  held[3].clear();
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, make_transfer_plan(model, layout, held));
  ASSERT_EQ(plan.moves.size(), need.size());
  int64_t bytes = 0;
  for (size_t i = 0; i < need.size(); ++i) {
    EXPECT_EQ(plan.moves[i].tensor, need[i]);
    EXPECT_EQ(plan.moves[i].to, Rank(3));
    bytes += tensor_state_bytes(model, need[i]);
  }
  EXPECT_EQ(plan.bytes, bytes);
  EXPECT_EQ(plan.busiest_rank_bytes, bytes);
}

TEST(TransferPlanTest, SourcesShareTheLoad) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 4, .stages = 1, .micro_batches = 4});
  auto held = all_needs(model, layout);
  held[3].clear();
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, make_transfer_plan(model, layout, held));
  std::vector<int64_t> sent(4);
  int64_t dearest = 0;
  for (const TensorMove& move : plan.moves) {
    sent[move.from.value()] += tensor_state_bytes(model, move.tensor);
    dearest = std::max(dearest, tensor_state_bytes(model, move.tensor));
  }
  EXPECT_LE(*std::max_element(sent.begin(), sent.begin() + 3),
            *std::min_element(sent.begin(), sent.begin() + 3) + dearest);
}

TEST(TransferPlanTest, ARankMayGiveWhatItDoesNotNeed) {
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 2, .micro_batches = 4});
  const auto needs = all_needs(model, layout);
  const std::vector<std::vector<TensorId>> held = {needs[1], needs[0]};
  ASSERT_OK_AND_ASSIGN(const TransferPlan plan, make_transfer_plan(model, layout, held));
  std::set<TensorId> tied(needs[0].begin(), needs[0].end());
  for (const TensorMove& move : plan.moves) EXPECT_EQ(move.from.value(), 1 - move.to.value());
  EXPECT_GT(plan.moves.size(), 0u);
}

TEST(TransferPlanTest, LostLayersAreNamed) {
  const ModelSpec model = small_model(Family::kLlama, Embeddings::kUntied);
  const Layout layout = grid(model, {.pipelines = 1, .stages = 1, .micro_batches = 1});
  auto held = all_needs(model, layout);
  for (const char* layer : {"blocks.2", "blocks.4"}) {
    for (const LayerSpec& spec : model.layers) {
      if (spec.name == layer) std::erase(held[0], spec.tensors.front().tensor);
    }
  }
  EXPECT_THAT(make_transfer_plan(model, layout, held),
              StatusIs(base::StatusCode::kDataLoss,
                       AllOf(HasSubstr("blocks.2, blocks.4"), Not(HasSubstr("blocks.3")))));
}

TEST(TransferPlanTest, ALostTiedTensorNamesBothLayers) {
  const ModelSpec model = small_model(Family::kGpt2, Embeddings::kTied);
  const Layout layout = grid(model, {.pipelines = 1, .stages = 2, .micro_batches = 1});
  auto held = all_needs(model, layout);
  const TensorId tied = model.find(base::LayerId(0), Role::kTokenTable);
  for (auto& list : held) std::erase(list, tied);
  EXPECT_THAT(make_transfer_plan(model, layout, held),
              StatusIs(base::StatusCode::kDataLoss, HasSubstr("embedding, head")));
}

// Any holdings: every need is met exactly once from a rank that holds it, and no source has more
// than its fair part where it had a choice.
TEST(TransferPlanTest, RandomHoldings) {
  base::SeededRandom random(::perdure::testing::test_seed());
  const ModelSpec models[] = {small_model(), small_model(Family::kLlama, Embeddings::kUntied)};
  for (int round = 0; round < 2000; ++round) {
    const ModelSpec& model = models[round % 2];
    const Layout layout = grid(model, {.pipelines = 1 + below(random, 4),
                                       .stages = 1 + below(random, 8),
                                       .micro_batches = 4 + below(random, 8)});
    const auto needs = all_needs(model, layout);
    std::vector<std::vector<TensorId>> held(needs.size());
    std::vector<bool> is_held(model.tensors.size());
    for (auto& list : held) {
      for (uint32_t t = 0; t < model.tensors.size(); ++t) {
        if (random.bernoulli(0.6)) {
          list.push_back(TensorId(t));
          is_held[t] = true;
        }
      }
    }
    const auto plan = make_transfer_plan(model, layout, held);
    const bool is_lost = std::find(is_held.begin(), is_held.end(), false) != is_held.end();
    if (is_lost) {
      EXPECT_THAT(plan, StatusIs(base::StatusCode::kDataLoss));
      continue;
    }
    ASSERT_OK(plan);
    EXPECT_TRUE(std::is_sorted(plan->moves.begin(), plan->moves.end(),
                               [](const TensorMove& a, const TensorMove& b) {
                                 return std::tie(a.tensor, a.to) < std::tie(b.tensor, b.to);
                               }));
    std::vector<std::set<TensorId>> after;
    for (const auto& list : held) after.emplace_back(list.begin(), list.end());
    std::vector<int64_t> load(held.size());
    int64_t bytes = 0;
    for (const TensorMove& move : plan->moves) {
      EXPECT_TRUE(std::binary_search(held[move.from.value()].begin(), held[move.from.value()].end(),
                                     move.tensor));
      EXPECT_TRUE(after[move.to.value()].insert(move.tensor).second) << "moved what was there";
      const int64_t size = tensor_state_bytes(model, move.tensor);
      load[move.from.value()] += size;
      load[move.to.value()] += size;
      bytes += size;
    }
    for (size_t r = 0; r < needs.size(); ++r) {
      for (const TensorId tensor : needs[r]) EXPECT_TRUE(after[r].contains(tensor));
    }
    EXPECT_EQ(plan->bytes, bytes);
    EXPECT_EQ(plan->busiest_rank_bytes, *std::max_element(load.begin(), load.end()));
  }
}

}  // namespace
}  // namespace perdure::parallel
