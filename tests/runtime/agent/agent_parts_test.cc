#include <vector>

#include "runtime/agent/outbox.h"
#include "runtime/agent/restart_policy.h"
#include "runtime/agent/worker_activity.h"
#include "runtime/protocol/report_messages.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::agent {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using protocol::MessageType;

TEST(RestartPolicyTest, DoublesItsDelayAndGivesUp) {
  RestartPolicy policy({.restarts_max = 3});
  EXPECT_EQ(policy.on_exit(1_s), 1_s);
  EXPECT_EQ(policy.on_exit(1_s), 2_s);
  EXPECT_EQ(policy.on_exit(59_s), 4_s);
  EXPECT_EQ(policy.on_exit(1_s), std::nullopt);
  EXPECT_EQ(policy.on_exit(60_s), 1_s) << "it was sound";
  policy.forgive();
  EXPECT_EQ(policy.on_exit(1_s), 1_s);
}

TEST(RestartPolicyTest, HasABoundedDelay) {
  RestartPolicy policy({.restarts_max = 100});
  base::Nanos last{0};
  for (int i = 0; i < 100; ++i) last = *policy.on_exit(1_s);
  EXPECT_EQ(last, 60_s);
}

TEST(RestartPolicyTest, NoneAllowed) {
  RestartPolicy policy({.restarts_max = 0});
  EXPECT_EQ(policy.on_exit(1000_s), std::nullopt);
}

protocol::WorkerMessage message(MessageType type, uint64_t number, size_t bytes = 8) {
  protocol::WorkerMessage m;
  m.type = type;
  m.epoch = base::Epoch(number);
  m.payload.resize(bytes);
  return m;
}

std::vector<uint64_t> epochs(const Outbox::Batch& batch) {
  std::vector<uint64_t> found;
  for (const auto& entry : batch) found.push_back(entry.message.epoch.value());
  return found;
}

TEST(OutboxTest, MessagesInARowGoTogether) {
  Outbox outbox;
  ASSERT_OK(outbox.push(message(MessageType::kStateTold, 1)));
  ASSERT_OK(outbox.push(message(MessageType::kStepReport, 2)));
  outbox.push_control(protocol::to_frame(protocol::WorkerDown{.how = "x"}, {}));
  ASSERT_OK(outbox.push(message(MessageType::kFinished, 3)));
  const auto first = outbox.take();
  EXPECT_EQ(epochs(first), (std::vector<uint64_t>{1, 2}));
  const rpc::Frame frame = to_frame(first, {.incarnation = base::Incarnation(7)});
  EXPECT_EQ(frame.stamp.incarnation, base::Incarnation(7));
  ASSERT_OK_AND_ASSIGN(const auto from, protocol::from_frame<protocol::FromWorkers>(frame));
  EXPECT_EQ(from.messages.size(), 2u);
  const auto second = outbox.take();
  EXPECT_TRUE(second.front().is_control);
  EXPECT_EQ(to_frame(second, {}).type, static_cast<uint16_t>(MessageType::kWorkerDown));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{3}));
  EXPECT_TRUE(outbox.empty());
}

TEST(OutboxTest, DropsTheOldestReportsOnly) {
  Outbox outbox({.reports_max = 2, .others_max = 3});
  ASSERT_OK(outbox.push(message(MessageType::kStateTold, 1)));
  for (uint64_t i = 2; i <= 4; ++i) ASSERT_OK(outbox.push(message(MessageType::kStepReport, i)));
  ASSERT_OK(outbox.push(message(MessageType::kEvaluationReport, 5)));
  EXPECT_EQ(outbox.dropped_count(), 2u);
  ASSERT_OK(outbox.push(message(MessageType::kStateTold, 6)));
  ASSERT_OK(outbox.push(message(MessageType::kStateTold, 7)));
  EXPECT_THAT(outbox.push(message(MessageType::kStateTold, 8)),
              StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{1, 4, 5, 6, 7}));
}

TEST(OutboxTest, ABatchThatWasNotSentIsTheOldestAgain) {
  Outbox outbox({.reports_max = 2});
  for (uint64_t i = 1; i <= 2; ++i) ASSERT_OK(outbox.push(message(MessageType::kStepReport, i)));
  auto batch = outbox.take();
  ASSERT_OK(outbox.push(message(MessageType::kStepReport, 3)));
  outbox.put_back(std::move(batch));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{2, 3}));
}

TEST(OutboxTest, ABatchIsBounded) {
  Outbox outbox({.batch_bytes_max = 100});
  for (uint64_t i = 1; i <= 3; ++i) ASSERT_OK(outbox.push(message(MessageType::kLoaded, i, 60)));
  ASSERT_OK(outbox.push(message(MessageType::kLoaded, 4, 600)));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{1}));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{2}));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{3}));
  EXPECT_EQ(epochs(outbox.take()), (std::vector<uint64_t>{4}));
}

// A worker that was silent while the coordinator was away, and has spoken since, is up.
TEST(OutboxTest, AJoinMakesWhatItTellsNeedless) {
  Outbox outbox;
  const protocol::WorkerInfo up{.worker = base::WorkerId(1), .incarnation = base::Incarnation(7)};
  const protocol::WorkerDown silent{.worker = up.worker, .incarnation = up.incarnation};
  const protocol::WorkerDown older{.worker = up.worker, .incarnation = base::Incarnation(6)};
  outbox.push_control(protocol::to_frame(protocol::WorkerUp{}, {}));
  outbox.push_control(protocol::to_frame(silent, {}));
  outbox.push_control(protocol::to_frame(older, {}));
  outbox.drop_known({up});
  ASSERT_EQ(outbox.size(), 1u);
  EXPECT_EQ(to_frame(outbox.take(), {}).type, static_cast<uint16_t>(MessageType::kWorkerDown));
}

TEST(WorkerActivityTest, EveryWorkerMessageHasOneDirection) {
  for (int t = 0; t < 70; ++t) {
    const auto type = static_cast<MessageType>(t);
    EXPECT_FALSE(goes_to_workers(type) && comes_from_workers(type)) << t;
    const bool of_workers = t >= 32 && t <= 48;
    EXPECT_EQ(goes_to_workers(type) || comes_from_workers(type), of_workers) << t;
  }
}

}  // namespace
}  // namespace perdure::runtime::agent
