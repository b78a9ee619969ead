#include "runtime/rpc/job_messages.h"

#include "base/random.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::rpc {
namespace {

using ::perdure::testing::StatusIs;
using ::perdure::testing::test_seed;

std::vector<std::byte> some_bytes(size_t n) { return std::vector<std::byte>(n, std::byte{0x5a}); }

// Every message: what was encoded is decoded; a message cut at any byte, or with a byte too many,
// is data loss.
template <typename Message>
Message round_trip(const Message& message) {
  const Payload payload = message.encode();
  auto decoded = Message::decode(payload);
  EXPECT_OK(decoded);
  for (size_t cut = 0; cut < payload.size(); ++cut) {
    EXPECT_THAT(Message::decode(std::span(payload).first(cut)),
                StatusIs(base::StatusCode::kDataLoss))
        << cut;
  }
  Payload longer = payload;
  longer.push_back(std::byte{0});
  EXPECT_THAT(Message::decode(longer), StatusIs(base::StatusCode::kDataLoss));
  EXPECT_EQ(decoded->encode(), payload);
  return *decoded;
}

TEST(JobMessagesTest, AllSurviveTheRoundTripAndRefuseEveryCut) {
  EXPECT_EQ(round_trip(Hello{.job_token = "secret", .worker = base::WorkerId(3), .pid = 77}).pid,
            77u);
  const Assignment assignment = round_trip(Assignment{.rank = base::Rank(2),
                                                      .ranks = 4,
                                                      .epoch = base::Epoch(9),
                                                      .job_toml = "[run]\nsteps = 3\n",
                                                      .job_source = "a.toml",
                                                      .overrides = {"run.steps=4", "run.seed=1"}});
  EXPECT_EQ(assignment.overrides.size(), 2u);
  round_trip(Ready{.address = some_bytes(90), .device = "cpu", .planned_bytes = 123});
  EXPECT_EQ(round_trip(Start{.addresses = {some_bytes(3), some_bytes(0), some_bytes(7)}})
                .addresses.size(),
            3u);
  EXPECT_EQ(round_trip(StepReport{.step = base::Step(5), .loss = 1.5, .attempts = 2}).attempts, 2u);
  EXPECT_EQ(round_trip(EvaluationReport{.step = base::Step(5), .loss = 1.25}).loss, 1.25);
  round_trip(Finished{.step = base::Step(20), .state_digest = 1, .params_digest = 2});
  EXPECT_EQ(round_trip(Failed{.code = 4, .text = "rank 1 is gone"}).text, "rank 1 is gone");
  round_trip(Goodbye{});
}

TEST(JobMessagesTest, NumbersOutOfRangeAreRefused) {
  EXPECT_THAT(Assignment::decode(Assignment{.rank = base::Rank(4), .ranks = 4}.encode()),
              StatusIs(base::StatusCode::kDataLoss));
  Payload many = Start{}.encode();
  many.assign(4, std::byte{0xff});
  EXPECT_THAT(Start::decode(many), StatusIs(base::StatusCode::kDataLoss));
}

TEST(JobMessagesTest, RandomBytesNeverDoMoreThanFail) {
  base::SeededRandom random(test_seed());
  for (int i = 0; i < 20000; ++i) {
    Payload bytes(random.uniform_int(64));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u64());
    (void)Hello::decode(bytes).is_ok();
    (void)Assignment::decode(bytes).is_ok();
    (void)Ready::decode(bytes).is_ok();
    (void)Start::decode(bytes).is_ok();
    (void)StepReport::decode(bytes).is_ok();
    (void)Finished::decode(bytes).is_ok();
    (void)Failed::decode(bytes).is_ok();
  }
}

}  // namespace
}  // namespace perdure::runtime::rpc
