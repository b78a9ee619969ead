// Layer costs, cluster specs, activation lists.
#include <functional>

#include "parallel/activation_plan.h"
#include "parallel/cluster_spec.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::LayerId;
using base::Rank;
using base::StatusCode;
using ::testing::HasSubstr;
using testing::small_model;
using testing::StatusIs;

TEST(LayerCostTest, MatrixFlopsFollowTheParameters) {
  const ModelSpec model = make_model_spec({.family = Family::kGpt2,
                                           .layers = 12,
                                           .width = 768,
                                           .heads = 12,
                                           .vocabulary = 50257,
                                           .context = 1024})
                              .value();
  const std::vector<LayerCost> costs = layer_costs(model, {.micro_batch = 1});
  double flops = 0.0;
  for (const LayerCost& cost : costs) flops += cost.flops();
  // 6 N per token for the matrices that multiply, and 7/2 passes of causal attention; the rest
  // (element-wise work, logits computed again) is a few per cent.
  const double rows = 1024.0;
  const double matrices = 124'439'808.0 - 1024.0 * 768.0;
  const double attention = 7.0 * rows * 1024.0 * 768.0 * 12.0;
  const double expected = 6.0 * matrices * rows + attention;
  EXPECT_GT(flops, expected);
  EXPECT_LT(flops, 1.2 * expected);
  EXPECT_EQ(costs[1].backward_weight_flops * 3, 6.0 * rows * 12 * 768 * 768);
}

TEST(LayerCostTest, RelativeCostsSumToOne) {
  const std::vector<double> costs = relative_layer_costs(small_model());
  double sum = 0.0;
  for (const double c : costs) sum += c;
  EXPECT_NEAR(sum, 1.0, 1e-12);
  EXPECT_LT(costs[0], costs[1]);
}

TEST(LayerCostTest, BoundaryIsTheResidualStream) {
  const ModelSpec model = small_model();
  const LayerCost block = layer_cost(model, LayerId(1), {.micro_batch = 3});
  EXPECT_EQ(block.boundary_bytes, 3 * 16 * 32 * 4);
  EXPECT_EQ(layer_cost(model, LayerId(7), {.micro_batch = 3}).boundary_bytes, 0);
  EXPECT_EQ(block.parameters, 12 * 32 * 32 + 13 * 32);
}

std::vector<Activation> kinds(const std::vector<ActivationSpec>& list) {
  std::vector<Activation> out;
  for (const ActivationSpec& a : list) out.push_back(a.activation);
  return out;
}

TEST(ActivationPlanTest, BlockKeepsWhatBackwardReads) {
  using enum Activation;
  const BatchShape batch{.micro_batch = 2};
  const ModelSpec gpt2 = small_model(Family::kGpt2);
  EXPECT_EQ(kinds(layer_activations(gpt2, LayerId(1), batch, StagePosition::kInner)),
            (std::vector<Activation>{kInput, kNorm1Mean, kNorm1Rstd, kNorm1Out, kQkv, kAttentionLse,
                                     kAttentionOut, kMiddle, kNorm2Mean, kNorm2Rstd, kNorm2Out,
                                     kFfnIn, kFfnAct}));
  const ModelSpec llama = small_model(Family::kLlama);
  EXPECT_EQ(
      kinds(layer_activations(llama, LayerId(1), batch, StagePosition::kLastOfStage)),
      (std::vector<Activation>{kInput, kNorm1Rstd, kNorm1Out, kQkv, kAttentionLse, kAttentionOut,
                               kMiddle, kNorm2Rstd, kNorm2Out, kFfnIn, kFfnAct, kOutput}));
}

TEST(ActivationPlanTest, EmbeddingAndHeadKeepLittle) {
  using enum Activation;
  const ModelSpec model = small_model(Family::kLlama);
  const auto list = [&model](uint32_t layer, StagePosition position) {
    return kinds(layer_activations(model, LayerId(layer), {}, position));
  };
  EXPECT_TRUE(list(0, StagePosition::kInner).empty());
  EXPECT_EQ(list(0, StagePosition::kLastOfStage), (std::vector<Activation>{kOutput}));
  EXPECT_EQ(list(7, StagePosition::kLastOfStage),
            (std::vector<Activation>{kInput, kFinalRstd, kFinalOut}));
  EXPECT_TRUE(layer_activation_grads(model, LayerId(0), {}).empty());
  EXPECT_TRUE(layer_activation_grads(model, LayerId(7), {}).empty());
}

TEST(ActivationPlanTest, SizesFollowTheComputeType) {
  const ModelSpec model = small_model(Family::kLlama);
  const BatchShape batch{.micro_batch = 2, .compute = ComputeType::kBF16};
  for (const ActivationSpec& a :
       layer_activations(model, LayerId(1), batch, StagePosition::kInner)) {
    if (a.activation == Activation::kQkv) {
      EXPECT_EQ(a.buffer.bytes(), 32 * (4 + 4) * 8 * 2);
    }
    if (a.activation == Activation::kFfnIn) {
      EXPECT_EQ(a.buffer.bytes(), 32 * 2 * 96 * 2);
    }
    if (a.activation == Activation::kAttentionLse) {
      EXPECT_EQ(a.buffer.bytes(), 2 * 4 * 16 * 4);
    }
    if (a.activation == Activation::kMiddle) {
      EXPECT_EQ(a.buffer.bytes(), 32 * 32 * 4);
    }
    EXPECT_EQ(a.buffer.bytes() % 64, 0);
  }
  EXPECT_EQ(layer_activation_grads(model, LayerId(1), batch).size(), 6u);
  EXPECT_EQ(layer_activation_grads(small_model(Family::kGpt2), LayerId(1), batch).size(), 8u);
}

TEST(ClusterSpecTest, RanksFillNodes) {
  const ClusterSpec cluster{.nodes = 2, .devices_per_node = 4};
  EXPECT_EQ(cluster.devices(), 8u);
  EXPECT_EQ(cluster.node_of(Rank(5)), base::NodeId(1));
  EXPECT_EQ(&cluster.link(Rank(0), Rank(3)), &cluster.inside_node);
  EXPECT_EQ(&cluster.link(Rank(0), Rank(4)), &cluster.between_nodes);
  EXPECT_DOUBLE_EQ((LinkSpec{1e6, 0.5}.transfer_seconds(2'000'000)), 2.5);
}

TEST(ClusterSpecTest, CheckNamesTheField) {
  EXPECT_OK(check_cluster({}));
  struct Case {
    std::function<void(ClusterSpec&)> spoil;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](ClusterSpec& c) { c.nodes = 0; }, "cluster.nodes (0) must be at least 1"},
      {[](ClusterSpec& c) { c.devices_per_node = 0; }, "cluster.devices_per_node (0)"},
      {[](ClusterSpec& c) { c.nodes = 1u << 21; }, "at most 1048576 devices"},
      {[](ClusterSpec& c) { c.inside_node.bytes_per_second = 0; },
       "cluster.inside_node.bytes_per_second (0) must be above 0"},
      {[](ClusterSpec& c) { c.between_nodes.latency_seconds = -1; },
       "cluster.between_nodes.latency_seconds (-1) must be 0 or above"},
      {[](ClusterSpec& c) { c.device_flops_per_second = std::nan(""); },
       "cluster.device_flops_per_second"},
      {[](ClusterSpec& c) { c.device_memory_bytes = 0; }, "cluster.device_memory_bytes (0)"},
  };
  for (const Case& c : cases) {
    ClusterSpec cluster;
    c.spoil(cluster);
    EXPECT_THAT(check_cluster(cluster),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace perdure::parallel
