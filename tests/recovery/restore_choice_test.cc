#include "recovery/restore_choice.h"

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using ::testing::HasSubstr;

class RestoreChoiceTest : public ::testing::Test {
 protected:
  RestoreChoiceTest() {
    for (uint32_t t = 0; t < model_.tensors.size(); ++t) all_.push_back(base::TensorId(t));
    half_ = {all_.begin(), all_.begin() + static_cast<ptrdiff_t>(all_.size() / 2)};
    rest_ = {all_.begin() + static_cast<ptrdiff_t>(all_.size() / 2), all_.end()};
  }
  static StateReport live(uint64_t step, const std::vector<base::TensorId>& tensors) {
    return {.has_state = 1, .committed = committed_at(step), .tensors = digests_at(tensors, step)};
  }
  static StateOffer offer(StateTier tier, uint64_t step,
                          const std::vector<base::TensorId>& tensors) {
    return {.tier = tier, .committed = committed_at(step), .tensors = digests_at(tensors, step)};
  }
  std::optional<RestoreChoice> choose(std::optional<base::Step> only = {}) const {
    return choose_restore(model_, told_, only);
  }

  const parallel::ModelSpec model_ = testing::small_model();
  std::vector<base::TensorId> all_, half_, rest_;
  std::vector<ToldState> told_;
};

TEST_F(RestoreChoiceTest, NothingIsChosenWhereNothingIsWhole) {
  EXPECT_FALSE(choose().has_value());
  told_ = {{base::WorkerId(0), live(3, half_)}};
  EXPECT_FALSE(choose().has_value());
  EXPECT_THAT(describe_offers(model_, told_), HasSubstr(model_.tensor(rest_.front()).name));
}

TEST_F(RestoreChoiceTest, TheNearestTierIsRead) {
  StateReport fresh;
  fresh.offers = {offer(StateTier::kDurable, 3, all_), offer(StateTier::kDisk, 3, all_)};
  StateReport other;
  other.offers = {offer(StateTier::kMemory, 3, rest_)};
  told_ = {{base::WorkerId(0), fresh}, {base::WorkerId(1), other}};
  const auto choice = choose();
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->live, 0u);
  EXPECT_EQ(choice->loads.at(base::WorkerId(0)), digests_at(half_, 3));
  EXPECT_EQ(choice->loads.at(base::WorkerId(1)), digests_at(rest_, 3));
}

// A copy whose digest differs from the nearest one is not mixed with it.
TEST_F(RestoreChoiceTest, SourcesThatDisagreeAreNotMixed) {
  StateReport holder = live(3, half_);
  StateReport fresh;
  fresh.offers = {offer(StateTier::kMemory, 3, all_)};
  fresh.offers[0].tensors[0].digest ^= 1;
  told_ = {{base::WorkerId(0), holder}, {base::WorkerId(1), fresh}};
  const auto choice = choose();
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->live, half_.size());
  EXPECT_EQ(choice->loads.at(base::WorkerId(1)), digests_at(rest_, 3));
}

// The same step with another data cursor is another state.
TEST_F(RestoreChoiceTest, StatesOfOneStepThatDifferAreNotMixed) {
  StateReport a;
  a.offers = {offer(StateTier::kMemory, 3, half_)};
  StateReport b;
  b.offers = {offer(StateTier::kMemory, 3, rest_), offer(StateTier::kDisk, 2, all_)};
  b.offers[0].committed.samples_consumed += 1;
  told_ = {{base::WorkerId(0), a}, {base::WorkerId(1), b}};
  const auto choice = choose();
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->target, committed_at(2));
}

TEST_F(RestoreChoiceTest, AnUnknownTensorIsNotUsed) {
  StateReport fresh;
  fresh.offers = {offer(StateTier::kMemory, 3, all_)};
  fresh.offers[0].tensors.push_back({base::TensorId(9999), 1});
  told_ = {{base::WorkerId(0), fresh}};
  ASSERT_TRUE(choose().has_value());
  EXPECT_EQ(choose()->loads.at(base::WorkerId(0)).size(), all_.size());
}

TEST_F(RestoreChoiceTest, OnlyTheStepThatIsAskedFor) {
  StateReport fresh;
  fresh.offers = {offer(StateTier::kDisk, 3, all_), offer(StateTier::kDisk, 2, all_)};
  told_ = {{base::WorkerId(0), fresh}};
  EXPECT_EQ(choose()->target, committed_at(3));
  EXPECT_EQ(choose(base::Step(2))->target, committed_at(2));
  EXPECT_FALSE(choose(base::Step(1)).has_value());
}

}  // namespace
}  // namespace perdure::recovery
