#include "recovery/gate.h"

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using base::Rank;
using base::StatusCode;
using base::TensorId;
using ::testing::HasSubstr;
using testing::StatusIs;

class GateTest : public ::testing::TestWithParam<parallel::Embeddings> {
 protected:
  GateTest() : model_(testing::small_model(parallel::Family::kGpt2, GetParam())) {
    plan_.epoch = base::Epoch(4);
    plan_.source = StateSource::kSurvivors;
    plan_.resume = committed_at(7);
    plan_.layout = testing::grid(model_, {.pipelines = 2, .stages = 3, .micro_batches = 8});
    for (uint32_t r = 0; r < plan_.layout.ranks(); ++r) {
      plan_.members.push_back({base::WorkerId(r), base::Incarnation(1), base::NodeId(r)});
      loaded_.push_back({plan_.resume, digests_at(plan_.layout.tensors(model_, Rank(r)), 7)});
    }
    for (uint32_t t = 0; t < model_.tensors.size(); ++t)
      before_.by_tensor.push_back(digest_at(TensorId(t), 7));
  }
  GateResult check() const { return check_gate(model_, plan_, loaded_, before_); }

  const parallel::ModelSpec model_;
  EpochPlan plan_;
  std::vector<LoadedReport> loaded_;
  HeldDigests before_;
};

INSTANTIATE_TEST_SUITE_P(Embeddings, GateTest,
                         ::testing::Values(parallel::Embeddings::kTied,
                                           parallel::Embeddings::kUntied));

TEST_P(GateTest, TheOldStateInTheNewLayoutPasses) {
  EXPECT_OK(check().status);
  EXPECT_FALSE(check().culprit.has_value());
}

TEST_P(GateTest, FromTheSeedHoldersAreComparedWithEachOther) {
  before_.by_tensor.assign(model_.tensors.size(), std::nullopt);
  EXPECT_OK(check().status);
  loaded_[4].tensors[0].digest ^= 1;
  EXPECT_THAT(check().status, StatusIs(StatusCode::kDataLoss, HasSubstr("differ")));
  EXPECT_FALSE(check().culprit.has_value());  // it could be either
}

TEST_P(GateTest, EachTensorOfEachRankCounts) {
  for (uint32_t r = 0; r < loaded_.size(); ++r) {
    for (size_t i = 0; i < loaded_[r].tensors.size(); ++i) {
      loaded_[r].tensors[i].digest ^= 1;
      const GateResult result = check();
      EXPECT_THAT(
          result.status,
          StatusIs(StatusCode::kDataLoss,
                   HasSubstr("has another " + model_.tensor(loaded_[r].tensors[i].tensor).name +
                             " than before")));
      EXPECT_EQ(result.culprit, Rank(r));
      loaded_[r].tensors[i].digest ^= 1;
    }
  }
}

TEST_P(GateTest, ATensorTooFewOrTooManyIsRefused) {
  for (uint32_t r = 0; r < loaded_.size(); ++r) {
    const std::vector<TensorDigest> whole = loaded_[r].tensors;
    loaded_[r].tensors.pop_back();
    EXPECT_THAT(check().status, StatusIs(StatusCode::kDataLoss, HasSubstr("its stage has")));
    EXPECT_EQ(check().culprit, Rank(r));
    loaded_[r].tensors = whole;
    loaded_[r].tensors.push_back(whole.back());
    EXPECT_THAT(check().status, StatusIs(StatusCode::kDataLoss, HasSubstr("its stage has")));
    loaded_[r].tensors = whole;
  }
}

TEST_P(GateTest, AnotherTensorInItsPlaceIsRefused) {
  loaded_[1].tensors[0] = loaded_[1].tensors[1];
  EXPECT_THAT(check().status, StatusIs(StatusCode::kDataLoss, HasSubstr("rank 1 lacks")));
  EXPECT_EQ(check().culprit, Rank(1));
}

TEST_P(GateTest, EveryScalarOfThePlanMustBeThere) {
  for (int field = 0; field < 5; ++field) {
    CommittedState& c = loaded_[5].committed;
    const CommittedState good = c;
    if (field == 0) c.step = base::Step(8);
    if (field == 1) c.samples_consumed += 8;
    if (field == 2) c.applied_steps = 0;
    if (field == 3) c.calibrated = 0;
    if (field == 4) c.skipped_in_a_row = 1;
    EXPECT_THAT(check().status,
                StatusIs(StatusCode::kDataLoss, HasSubstr("the plan resumes at step 7")))
        << field;
    EXPECT_EQ(check().culprit, Rank(5));
    c = good;
  }
}

TEST_P(GateTest, ATensorWithoutAHolderIsRefused) {
  plan_.layout.pipelines.clear();
  EXPECT_THAT(check().status, StatusIs(StatusCode::kDataLoss, HasSubstr("nobody holds")));
  EXPECT_FALSE(check().culprit.has_value());
}

}  // namespace
}  // namespace perdure::recovery
