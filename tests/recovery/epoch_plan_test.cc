#include "recovery/epoch_plan.h"

#include "recovery/epoch_fields.h"
#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using base::Rank;
using base::StatusCode;
using base::TensorId;
using base::WorkerId;
using ::testing::HasSubstr;
using testing::StatusIs;

class EpochPlanTest : public ::testing::Test {
 protected:
  EpochPlanTest() {
    plan_.epoch = base::Epoch(2);
    plan_.layout = testing::grid(model_, {.pipelines = 2, .stages = 2, .micro_batches = 8});
    for (uint32_t r = 0; r < 4; ++r)
      plan_.members.push_back({WorkerId(10 + r), base::Incarnation(r + 1), base::NodeId(r)});
    plan_.moves = {{TensorId(0), Rank(0), Rank(2)}};
  }
  const parallel::ModelSpec model_ = testing::small_model();
  EpochPlan plan_;
};

TEST_F(EpochPlanTest, AGoodPlanIsLegal) { EXPECT_OK(check_plan(model_, plan_)); }

TEST_F(EpochPlanTest, ALayoutThatDoesNotFitTheModelIsRefused) {
  plan_.layout.pipelines[1].stages[1].layer_end -= 1;
  EXPECT_THAT(check_plan(model_, plan_), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(EpochPlanTest, AMemberTooFewOrTooManyIsRefused) {
  plan_.members.pop_back();
  EXPECT_THAT(check_plan(model_, plan_),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("plan of epoch 2 has 3 members for 4 ranks")));
  plan_.members.resize(5);
  EXPECT_THAT(check_plan(model_, plan_), StatusIs(StatusCode::kInvalidArgument));
}

TEST_F(EpochPlanTest, AWorkerTwiceIsRefused) {
  plan_.members[3].worker = plan_.members[0].worker;
  EXPECT_THAT(check_plan(model_, plan_),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("worker 10 has two ranks")));
}

TEST_F(EpochPlanTest, MovesThatCannotBeAreRefused) {
  const TensorId beyond(static_cast<uint32_t>(model_.tensors.size()));
  for (const parallel::TensorMove& move : {parallel::TensorMove{TensorId(0), Rank(4), Rank(0)},
                                           parallel::TensorMove{TensorId(0), Rank(0), Rank(4)},
                                           parallel::TensorMove{TensorId(0), Rank(1), Rank(1)},
                                           parallel::TensorMove{beyond, Rank(0), Rank(1)}}) {
    plan_.moves = {move};
    EXPECT_THAT(check_plan(model_, plan_),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("plan moves tensor")));
  }
}

TEST_F(EpochPlanTest, OnlyTheProcessItselfHasTheRank) {
  EXPECT_EQ(rank_of(plan_, WorkerId(12), base::Incarnation(3)), Rank(2));
  EXPECT_EQ(rank_of(plan_, WorkerId(12), base::Incarnation(2)), std::nullopt);
  EXPECT_EQ(rank_of(plan_, WorkerId(12), base::Incarnation(4)), std::nullopt);
  EXPECT_EQ(rank_of(plan_, WorkerId(2), base::Incarnation(3)), std::nullopt);
}

}  // namespace
}  // namespace perdure::recovery
