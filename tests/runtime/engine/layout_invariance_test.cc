// The promise that everything else stands on: the layout does not change a bit of the result.

#include "tests/runtime/engine/train_harness.h"

namespace perdure::runtime::engine {
namespace {

using parallel::ComputeType;
using parallel::Family;

struct Shape {
  uint32_t pipelines;
  uint32_t stages;
};
constexpr Shape kShapes[] = {{2, 1}, {1, 2}, {2, 2}, {4, 1}, {1, 4}, {3, 1}, {3, 2}};

struct Case {
  std::string name;
  Family family;
  ComputeType compute;
  parallel::Embeddings embeddings;
  Numerics numerics;
};

class LayoutInvarianceTest : public ::testing::TestWithParam<Case> {
 protected:
  TrainJob job() const {
    TrainJob job;
    job.model = tiny_model(GetParam().family);
    job.model.embeddings = GetParam().embeddings;
    job.batch.compute = GetParam().compute;
    job.numerics = GetParam().numerics;
    return job;
  }
};

TEST_P(LayoutInvarianceTest, EveryLayoutGivesTheDigestsOfOneRank) {
  TrainJob one = job();
  const TrainTrace expected = train(one);
  ASSERT_EQ(expected.digests.size(), one.steps + 1);
  EXPECT_LT(expected.results.back().loss, expected.results.front().loss) << "it does not learn";
  for (const Shape shape : kShapes) {
    if (one.numerics.grain == 2 && shape.pipelines == 3) continue;  // tested by its own layouts
    TrainJob other = one;
    other.pipelines = shape.pipelines;
    other.stages = shape.stages;
    const TrainTrace trace = train(other);
    EXPECT_EQ(trace.digests, expected.digests) << shape.pipelines << " x " << shape.stages;
    EXPECT_EQ(trace.params, expected.params);
    EXPECT_EQ(trace.evaluation, expected.evaluation);
    for (size_t i = 0; i < expected.results.size(); ++i) {
      EXPECT_EQ(trace.results[i].loss, expected.results[i].loss);
      EXPECT_EQ(trace.results[i].grad_norm, expected.results[i].grad_norm);
    }
  }
}

Numerics exact(uint32_t width, int64_t block, uint32_t grain) {
  return {.mode = SumMode::kExact, .width_bits = width, .block_elements = block, .grain = grain};
}

INSTANTIATE_TEST_SUITE_P(Exact, LayoutInvarianceTest,
                         ::testing::Values(Case{"gpt2_f32", Family::kGpt2, ComputeType::kF32,
                                                parallel::Embeddings::kTied, exact(64, 0, 1)},
                                           Case{"gpt2_bf16", Family::kGpt2, ComputeType::kBF16,
                                                parallel::Embeddings::kTied, exact(64, 0, 1)},
                                           Case{"llama_f32", Family::kLlama, ComputeType::kF32,
                                                parallel::Embeddings::kUntied, exact(64, 0, 1)},
                                           Case{"llama_bf16", Family::kLlama, ComputeType::kBF16,
                                                parallel::Embeddings::kTied, exact(64, 0, 1)},
                                           Case{"gpt2_32_blocks", Family::kGpt2, ComputeType::kF32,
                                                parallel::Embeddings::kTied, exact(32, 64, 1)},
                                           Case{"llama_32_grain", Family::kLlama, ComputeType::kF32,
                                                parallel::Embeddings::kTied, exact(32, 256, 2)}),
                         [](const auto& test) { return test.param.name; });

// The comparison above can fail: floating-point sums do depend on who adds what.
TEST(LayoutInvarianceTest, FastModeDiffersBetweenLayoutsButRepeatsWithinOne) {
  TrainJob one;
  one.model = tiny_model(Family::kGpt2);
  one.numerics.mode = SumMode::kFast;
  TrainJob three = one;
  three.pipelines = 3;
  const TrainTrace a = train(one), b = train(three), c = train(three);
  EXPECT_NE(a.digests, b.digests);
  EXPECT_EQ(b.digests, c.digests);
  EXPECT_EQ(a.digests.front(), b.digests.front()) << "the initial state is the same";
  EXPECT_NEAR(a.results.back().loss, b.results.back().loss, 1e-3);
}

}  // namespace
}  // namespace perdure::runtime::engine
