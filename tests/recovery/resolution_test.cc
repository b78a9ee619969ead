#include "recovery/resolution.h"

#include "tests/recovery/machine_harness.h"

namespace perdure::recovery {
namespace {

using base::Epoch;
using base::StatusCode;
using base::TensorId;
using base::WorkerId;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::StatusIs;

constexpr VoteId kVoteA{.epoch = Epoch(3), .attempt = 1};
constexpr VoteId kVoteB{.epoch = Epoch(3), .attempt = 2};

ToldState at(uint32_t worker, uint64_t step, VoteId vote = {}, VoteId pending = {}) {
  return {
      .worker = WorkerId(worker),
      .state = {.has_state = 1, .committed = committed_at(step), .vote = vote, .pending = pending}};
}
ToldState nothing(uint32_t worker) { return {.worker = WorkerId(worker)}; }

TEST(ResolutionTest, NobodyIsAFreshStart) {
  const Resolution none = resolve({});
  EXPECT_FALSE(none.any_state);
  EXPECT_EQ(none.committed, CommittedState{});
  const Resolution fresh = resolve({nothing(0), nothing(1)});
  EXPECT_FALSE(fresh.any_state);
  EXPECT_THAT(fresh.holders, IsEmpty());
  EXPECT_THAT(fresh.stale, IsEmpty());
}

TEST(ResolutionTest, TheNewestStepIsTheCommittedOne) {
  const Resolution r = resolve({at(0, 5), at(1, 7), nothing(2), at(3, 7), at(4, 6)});
  EXPECT_TRUE(r.any_state);
  EXPECT_EQ(r.committed, committed_at(7));
  EXPECT_THAT(r.holders, ElementsAre(WorkerId(1), WorkerId(3)));
  EXPECT_THAT(r.stale, ElementsAre(WorkerId(0), WorkerId(4)));
  EXPECT_THAT(r.behind, IsEmpty());
  EXPECT_FALSE(r.asked.has_value());
}

TEST(ResolutionTest, WhoLacksOnlyTheVoteIsBehindItsGiver) {
  const Resolution r =
      resolve({at(0, 6, {}, kVoteA), at(1, 7, kVoteA), at(2, 7, kVoteA), at(3, 6, {}, kVoteA)});
  EXPECT_THAT(r.holders, ElementsAre(WorkerId(1), WorkerId(2)));
  EXPECT_THAT(r.behind, ElementsAre(WorkerId(0), WorkerId(3)));
  EXPECT_EQ(r.asked, WorkerId(1));
  EXPECT_THAT(r.stale, IsEmpty());
}

TEST(ResolutionTest, AVoteOfAnotherAttemptHelpsNobody) {
  const Resolution r = resolve({at(0, 6, {}, kVoteB), at(1, 7, kVoteA)});
  EXPECT_THAT(r.behind, IsEmpty());
  EXPECT_THAT(r.stale, ElementsAre(WorkerId(0)));
  EXPECT_FALSE(r.asked.has_value());
}

TEST(ResolutionTest, AHolderWhoseStateCameOtherwiseHasNoVoteToGive) {
  const Resolution r = resolve({at(0, 6, {}, kVoteA), at(1, 7)});
  EXPECT_THAT(r.stale, ElementsAre(WorkerId(0)));
}

TEST(ResolutionTest, TheGiverIsWhoHasThatVote) {
  const Resolution r = resolve({at(0, 7, kVoteB), at(1, 6, {}, kVoteA), at(2, 7, kVoteA)});
  EXPECT_THAT(r.behind, ElementsAre(WorkerId(1)));
  EXPECT_EQ(r.asked, WorkerId(2));
}

TEST(ResolutionTest, TwoStepsBehindIsStaleWhateverIsPending) {
  const Resolution r = resolve({at(0, 5, {}, kVoteA), at(1, 7, kVoteA)});
  EXPECT_THAT(r.stale, ElementsAre(WorkerId(0)));
  EXPECT_THAT(r.behind, IsEmpty());
}

TEST(ResolutionTest, WithoutAVoteAnywhereTheStepIsAborted) {
  const Resolution r = resolve({at(0, 6, {}, kVoteA), at(1, 6, {}, kVoteA)});
  EXPECT_EQ(r.committed, committed_at(6));
  EXPECT_THAT(r.holders, ElementsAre(WorkerId(0), WorkerId(1)));
  EXPECT_THAT(r.behind, IsEmpty());
}

class DigestsTest : public ::testing::Test {
 protected:
  static ToldState with(uint32_t worker, uint64_t step, std::vector<TensorId> tensors) {
    ToldState told = at(worker, step);
    told.state.tensors = digests_at(tensors, step);
    return told;
  }
  const parallel::ModelSpec model_ = testing::small_model();
};

TEST_F(DigestsTest, HoldersOfTheStepAreGathered) {
  ASSERT_OK_AND_ASSIGN(
      const HeldDigests held,
      agree_on_digests(model_,
                       {with(0, 7, {TensorId(0), TensorId(1)}), with(1, 6, {TensorId(2)}),
                        nothing(2), with(3, 7, {TensorId(1), TensorId(3)})},
                       committed_at(7)));
  ASSERT_EQ(held.by_tensor.size(), model_.tensors.size());
  EXPECT_EQ(held.by_tensor[0], digest_at(TensorId(0), 7));
  EXPECT_EQ(held.by_tensor[1], digest_at(TensorId(1), 7));
  EXPECT_EQ(held.by_tensor[2], std::nullopt);  // an older step is of no interest
  EXPECT_EQ(held.by_tensor[3], digest_at(TensorId(3), 7));
}

TEST_F(DigestsTest, ReplicasThatDifferAreNamed) {
  ToldState bad = with(3, 7, {TensorId(1)});
  bad.state.tensors[0].digest ^= 1;
  EXPECT_THAT(
      agree_on_digests(model_, {with(0, 7, {TensorId(1)}), bad}, committed_at(7)),
      StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr(model_.tensors[1].name), HasSubstr("step 7"),
                                            HasSubstr("worker 0"), HasSubstr("worker 3"))));
}

// Every scalar that a step moves counts, not only the tensors.
TEST_F(DigestsTest, ScalarsThatDifferAreNamed) {
  for (int field = 0; field < 4; ++field) {
    ToldState bad = with(3, 7, {TensorId(1)});
    CommittedState& c = bad.state.committed;
    if (field == 0) c.samples_consumed += 1;
    if (field == 1) c.applied_steps -= 1;
    if (field == 2) c.calibrated ^= 1;
    if (field == 3) c.skipped_in_a_row += 1;
    EXPECT_THAT(agree_on_digests(model_, {with(0, 7, {TensorId(1)}), bad}, committed_at(7)),
                StatusIs(StatusCode::kDataLoss, HasSubstr("worker 3 is at step 7 with another")))
        << field;
  }
}

TEST_F(DigestsTest, ATensorThatTheModelHasNotIsRefused) {
  const TensorId beyond(static_cast<uint32_t>(model_.tensors.size()));
  EXPECT_THAT(agree_on_digests(model_, {with(0, 7, {beyond})}, committed_at(7)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("the model has not")));
}

}  // namespace
}  // namespace perdure::recovery
