#include "parallel/model_spec.h"

#include <functional>
#include <set>

#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::LayerId;
using base::StatusCode;
using ::testing::HasSubstr;
using testing::small_config;

TEST(ModelSpecTest, CountsTheParametersOfGpt2Small) {
  const ModelConfig config{.family = Family::kGpt2,
                           .layers = 12,
                           .width = 768,
                           .heads = 12,
                           .vocabulary = 50257,
                           .context = 1024};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, make_model_spec(config));
  EXPECT_EQ(spec.parameters(), 124'439'808);
  EXPECT_EQ(spec.layers.size(), 14u);
  EXPECT_EQ(spec.config.ffn_width, 3072);
}

TEST(ModelSpecTest, CountsTheParametersOfLlama8B) {
  const ModelConfig config{.family = Family::kLlama,
                           .layers = 32,
                           .width = 4096,
                           .heads = 32,
                           .kv_heads = 8,
                           .ffn_width = 14336,
                           .vocabulary = 128256,
                           .context = 8192,
                           .embeddings = Embeddings::kUntied};
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, make_model_spec(config));
  EXPECT_EQ(spec.parameters(), 8'030'261'248);
}

TEST(ModelSpecTest, FillsInTheSizesLeftAtZero) {
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec,
                       make_model_spec({.family = Family::kLlama, .width = 128, .heads = 4}));
  EXPECT_EQ(spec.config.kv_heads, 4);
  EXPECT_EQ(spec.config.ffn_width, 352);  // 341.3 rounded up to a multiple of 32
  ASSERT_OK_AND_ASSIGN(const ModelSpec exact,
                       make_model_spec({.family = Family::kLlama, .width = 96, .heads = 4}));
  EXPECT_EQ(exact.config.ffn_width, 256);
}

TEST(ModelSpecTest, KeepsEachOf30Layers) {
  ModelConfig config = small_config(Family::kLlama);
  config.layers = 30;
  ASSERT_OK_AND_ASSIGN(const ModelSpec spec, make_model_spec(config));
  std::set<std::string> names;
  for (const LayerSpec& layer : spec.layers) names.insert(layer.name);
  EXPECT_EQ(names.size(), 32u);
  EXPECT_TRUE(names.contains("blocks.29"));
}

TEST(ModelSpecTest, NamesAreUniqueAndShapesFollowTheRoles) {
  const ModelSpec spec = make_model_spec(small_config(Family::kLlama)).value();
  std::set<std::string> names;
  for (const TensorSpec& tensor : spec.tensors) EXPECT_TRUE(names.insert(tensor.name).second);
  EXPECT_TRUE(names.contains("blocks.3.attention.qkv.weight"));
  const LayerId block(1);
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(spec.tensor(spec.find(block, Role::kQkvWeight)).shape, (Shape{(4 + 4) * 8, 32}));
  EXPECT_EQ(spec.tensor(spec.find(block, Role::kFfnInWeight)).shape, (Shape{2 * 96, 32}));
  EXPECT_EQ(spec.tensor(spec.find(block, Role::kFfnOutWeight)).shape, (Shape{32, 96}));
}

TEST(ModelSpecTest, LlamaHasNeitherBiasesNorPositions) {
  const ModelSpec spec = make_model_spec(small_config(Family::kLlama)).value();
  EXPECT_FALSE(spec.has(LayerId(0), Role::kPositionTable));
  for (const Role role : {Role::kNorm1Beta, Role::kQkvBias, Role::kAttentionOutBias,
                          Role::kNorm2Beta, Role::kFfnInBias, Role::kFfnOutBias}) {
    EXPECT_FALSE(spec.has(LayerId(1), role));
  }
  EXPECT_FALSE(spec.has(LayerId(7), Role::kFinalBeta));
  const ModelSpec gpt2 = make_model_spec(small_config(Family::kGpt2)).value();
  EXPECT_TRUE(gpt2.has(LayerId(0), Role::kPositionTable));
  EXPECT_TRUE(gpt2.has(LayerId(1), Role::kQkvBias));
  EXPECT_TRUE(gpt2.has(LayerId(7), Role::kFinalBeta));
}

TEST(ModelSpecTest, TiesTheHeadToTheTokenTable) {
  ModelConfig config = small_config(Family::kLlama);
  const ModelSpec tied = make_model_spec(config).value();
  EXPECT_EQ(tied.find(LayerId(7), Role::kHeadWeight), tied.find(LayerId(0), Role::kTokenTable));
  config.embeddings = Embeddings::kUntied;
  const ModelSpec untied = make_model_spec(config).value();
  EXPECT_NE(untied.find(LayerId(7), Role::kHeadWeight), untied.find(LayerId(0), Role::kTokenTable));
  EXPECT_EQ(untied.parameters() - tied.parameters(), config.vocabulary * config.width);
}

TEST(ModelSpecTest, DecaysMatricesOnlyAndScalesResidualProjections) {
  const ModelSpec spec = make_model_spec(small_config(Family::kGpt2)).value();
  for (const TensorSpec& tensor : spec.tensors) {
    EXPECT_EQ(tensor.decay == Decay::kYes, tensor.shape.size() == 2) << tensor.name;
    EXPECT_EQ(tensor.use == TensorUse::kMatrix, tensor.shape.size() == 2) << tensor.name;
  }
  const LayerId block(1);
  EXPECT_DOUBLE_EQ(spec.tensor(spec.find(block, Role::kQkvWeight)).init_std, 0.02);
  EXPECT_DOUBLE_EQ(spec.tensor(spec.find(block, Role::kFfnOutWeight)).init_std,
                   0.02 / std::sqrt(12.0));
  EXPECT_EQ(spec.tensor(spec.find(block, Role::kNorm1Gamma)).init, Init::kOne);
  EXPECT_EQ(spec.tensor(spec.find(block, Role::kNorm1Beta)).init, Init::kZero);
}

struct BadConfig {
  const char* name;
  std::function<void(ModelConfig&)> spoil;
  const char* message;
};

TEST(ModelSpecTest, RefusesWrongSizesAndNamesTheKey) {
  const double nan = std::nan("");
  const std::vector<BadConfig> cases = {
      {"layers", [](ModelConfig& c) { c.layers = 0; }, "model.layers (0) must be from 1"},
      {"width", [](ModelConfig& c) { c.width = -4; }, "model.width (-4) must be from 1"},
      {"huge", [](ModelConfig& c) { c.width = 1 << 21; }, "model.width (2097152) must be from 1"},
      {"heads", [](ModelConfig& c) { c.heads = 0; }, "model.heads (0)"},
      {"division", [](ModelConfig& c) { c.width = 130; },
       "model.width (130) must be a multiple of model.heads (4)"},
      {"kv", [](ModelConfig& c) { c.kv_heads = -1; }, "model.kv_heads (-1)"},
      {"groups", [](ModelConfig& c) { c.kv_heads = 3; },
       "model.heads (4) must be a multiple of model.kv_heads (3)"},
      {"odd", [](ModelConfig& c) { c.width = 36; }, "must be even"},
      {"ffn", [](ModelConfig& c) { c.ffn_width = -1; }, "model.ffn_width (-1)"},
      {"vocabulary", [](ModelConfig& c) { c.vocabulary = 1; }, "model.vocabulary (1)"},
      {"context", [](ModelConfig& c) { c.context = 0; }, "model.context (0)"},
      {"epsilon", [](ModelConfig& c) { c.norm_epsilon = 0; }, "model.norm_epsilon"},
      {"epsilon nan", [nan](ModelConfig& c) { c.norm_epsilon = nan; }, "model.norm_epsilon"},
      {"theta", [](ModelConfig& c) { c.rope_theta = 1.0; }, "model.rope_theta"},
      {"gpt2 groups", [](ModelConfig& c) { c.family = Family::kGpt2; },
       "model.kv_heads (2) must be 0 or equal to model.heads (4)"},
  };
  for (const BadConfig& bad : cases) {
    ModelConfig config = small_config(Family::kLlama);
    bad.spoil(config);
    EXPECT_THAT(make_model_spec(config),
                testing::StatusIs(StatusCode::kInvalidArgument, HasSubstr(bad.message)))
        << bad.name;
  }
}

TEST(ModelSpecDeathTest, FindChecksThatTheRoleIsThere) {
  const ModelSpec spec = make_model_spec(small_config(Family::kLlama)).value();
  EXPECT_DEATH((void)spec.find(LayerId(1), Role::kQkvBias), "has no tensor of role");
}

}  // namespace
}  // namespace perdure::parallel
