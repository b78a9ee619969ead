// Jobs that fail: how soon, and what is said about it.

#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using namespace base::literals;
using base::StatusCode;
using base::WorkerId;
using ::perdure::testing::StatusIs;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class JobFailureTest : public CoordinatorTest {
 protected:
  void report_end(uint32_t worker, WorkerEnd end, const std::string& how) {
    on_coordinator(
        [=](JobCoordinator& coordinator) { coordinator.worker_ended(WorkerId(worker), end, how); });
  }
  void stop(base::Status why) {
    on_coordinator([=](JobCoordinator& coordinator) { coordinator.stop(why); });
  }
  void fail(uint32_t worker, StatusCode code, const std::string& text) {
    const rpc::Failed failed{.code = static_cast<uint32_t>(code), .text = text};
    ASSERT_OK(workers_[worker]->send(failed));
  }
};

TEST_F(JobFailureTest, WorkersThatAreNotReadyInTimeAreNamed) {
  start_coordinator(3);
  ASSERT_NO_FATAL_FAILURE(join(2));  // is let in, and says nothing more
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(1));
  EXPECT_THAT(outcome(),
              StatusIs(StatusCode::kDeadlineExceeded, "workers not ready in time: 0, 2"));
  EXPECT_GT(world_.now(), 60_s);
  EXPECT_LT(world_.now(), 61_s);
  EXPECT_THAT(workers_[1]->receive(), StatusIs(StatusCode::kUnavailable));
}

TEST_F(JobFailureTest, AJobThatNobodyJoinsEnds) {
  start_coordinator(2);
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDeadlineExceeded, EndsWith(": 0, 1")));
}

TEST_F(JobFailureTest, ABrokenConnectionFailsAJobThatHasNotStarted) {
  start_coordinator(2);
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(0));
  workers_[0]->close();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 0")));
  EXPECT_LT(world_.now(), 1_s);
}

TEST_F(JobFailureTest, ABrokenConnectionFailsAStartedJob) {
  ASSERT_NO_FATAL_FAILURE(start_job(3));
  world_.host("n1").kill(chaos::Crash::kProcess);
  const base::Nanos begin = world_.now();
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kUnavailable, HasSubstr("worker 1")));
  EXPECT_LT(world_.now() - begin, 1_s);
  EXPECT_THAT(workers_[0]->receive(), StatusIs(StatusCode::kUnavailable));
}

TEST_F(JobFailureTest, AWorkerThatFailsIsQuoted) {
  for (const StatusCode code :
       {StatusCode::kCancelled, StatusCode::kUnavailable, StatusCode::kInvalidArgument,
        StatusCode::kResourceExhausted, StatusCode::kDataLoss, StatusCode::kUnimplemented}) {
    JobFailureTest_AWorkerThatFailsIsQuoted_Test fresh;
    ASSERT_NO_FATAL_FAILURE(fresh.start_job(2));
    fresh.fail(1, code, "no device 'gpu'");
    EXPECT_THAT(fresh.outcome(),
                StatusIs(code, AllOf(HasSubstr("worker 1"), HasSubstr("no device 'gpu'"))));
  }
}

TEST_F(JobFailureTest, AFailureOfNoKnownKindIsDataLoss) {
  for (const uint32_t code : {0u, 13u, 0xffffffffu}) {
    JobFailureTest_AFailureOfNoKnownKindIsDataLoss_Test fresh;
    ASSERT_NO_FATAL_FAILURE(fresh.start_job(2));
    ASSERT_OK(fresh.workers_[0]->send(rpc::Failed{.code = code, .text = "?"}));
    EXPECT_THAT(fresh.outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("worker 0"))) << code;
  }
}

TEST_F(JobFailureTest, AWorkerMayFailBeforeItIsReady) {
  start_coordinator(2);
  ASSERT_NO_FATAL_FAILURE(join(1));
  fail(1, StatusCode::kInvalidArgument, "bad job");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("bad job")));
  EXPECT_LT(world_.now(), 1_s);
}

TEST_F(JobFailureTest, AKilledWorkerOutweighsWhatFollowsFromIt) {
  ASSERT_NO_FATAL_FAILURE(start_job(3));
  fail(0, StatusCode::kUnavailable, "rank 2 is gone");
  pass(100_ms);
  fail(1, StatusCode::kAborted, "rank 0 has left");
  pass(50_ms);
  report_end(2, WorkerEnd::kKilled, "signal 9");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kInternal,
                                  AllOf(HasSubstr("worker 2 ended"), HasSubstr("signal 9"))));
}

TEST_F(JobFailureTest, AKilledWorkerStaysTheReasonWhateverIsToldAfterIt) {
  ASSERT_NO_FATAL_FAILURE(start_job(3));
  report_end(2, WorkerEnd::kKilled, "signal 9");
  fail(0, StatusCode::kUnavailable, "rank 2 is gone");
  fail(1, StatusCode::kDeadlineExceeded, "rank 2 is late");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kInternal, HasSubstr("worker 2 ended")));
}

TEST_F(JobFailureTest, OfTwoEndsTheKilledOneCounts) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  report_end(0, WorkerEnd::kExited, "code 1");
  report_end(1, WorkerEnd::kKilled, "signal 11");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kInternal, HasSubstr("signal 11")));
}

TEST_F(JobFailureTest, AnExitAloneIsReasonEnough) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  report_end(0, WorkerEnd::kExited, "code 1");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kAborted, HasSubstr("worker 0 ended early: code 1")));
}

TEST_F(JobFailureTest, AStepReportOutOfRangeIsDataLoss) {
  for (const rpc::StepReport& bad : {rpc::StepReport{.step = base::Step(0)},
                                     rpc::StepReport{.step = base::Step(1), .attempts = 0},
                                     rpc::StepReport{.step = base::Step(1), .applied = 2}}) {
    JobFailureTest_AStepReportOutOfRangeIsDataLoss_Test fresh;
    ASSERT_NO_FATAL_FAILURE(fresh.start_job(1));
    ASSERT_OK(fresh.workers_[0]->send(bad));
    EXPECT_THAT(fresh.outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("out of range")));
  }
}

TEST_F(JobFailureTest, MessagesOutOfPlaceAreDataLoss) {
  for (const uint16_t type : {0, 1, 2, 4, 9, 10, 0xffff}) {
    JobFailureTest_MessagesOutOfPlaceAreDataLoss_Test fresh;
    ASSERT_NO_FATAL_FAILURE(fresh.start_job(2));
    ASSERT_OK(fresh.workers_[1]->send_frame(type, {}));
    EXPECT_THAT(fresh.outcome(),
                StatusIs(StatusCode::kDataLoss, HasSubstr("type " + std::to_string(type))));
  }
}

TEST_F(JobFailureTest, MessagesBeforeTheirTimeAreDataLoss) {
  start_coordinator(2);
  ASSERT_NO_FATAL_FAILURE(join(0));
  ASSERT_OK(workers_[0]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5000}));
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("worker 0")));
  EXPECT_TRUE(journal_.lines.empty());
}

TEST_F(JobFailureTest, ASecondReadyIsDataLoss) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  ASSERT_OK(workers_[0]->send(ready_of(0)));
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("worker 0")));
}

TEST_F(JobFailureTest, WhatCannotBeReadIsDataLoss) {
  const rpc::Payload cut(3, std::byte{1});
  for (const uint16_t type : {3, 5, 6, 7, 8}) {
    JobFailureTest_WhatCannotBeReadIsDataLoss_Test fresh;
    if (type == 3) {
      fresh.start_coordinator(2);
      ASSERT_NO_FATAL_FAILURE(fresh.join(0));
    } else {
      ASSERT_NO_FATAL_FAILURE(fresh.start_job(2));
    }
    ASSERT_OK(fresh.workers_[0]->send_frame(type, cut));
    EXPECT_THAT(fresh.outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("worker 0"))) << type;
  }
}

TEST_F(JobFailureTest, ADamagedFrameOfAWorkerIsDataLoss) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  std::vector<std::byte> frame =
      rpc::encode_frame(5, rpc::StepReport{.step = base::Step(1)}.encode());
  frame.back() ^= std::byte{0x10};
  ASSERT_OK(workers_[0]->send_bytes(frame));
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
}

TEST_F(JobFailureTest, StopEndsAJobAtAnyTime) {
  start_coordinator(2);
  ASSERT_NO_FATAL_FAILURE(join_and_be_ready(0));
  stop(base::cancelled("interrupted"));
  stop(base::cancelled("interrupted again"));
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kCancelled, "interrupted"));
  EXPECT_LT(world_.now(), 1_s);
  stop(base::cancelled("after the end"));
  EXPECT_THAT(workers_[0]->receive(), StatusIs(StatusCode::kUnavailable));
}

TEST_F(JobFailureTest, StopEndsAStartedJob) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  ASSERT_OK(workers_[0]->send(rpc::StepReport{.step = base::Step(1)}));
  pass(1_s);
  stop(base::cancelled("interrupted"));
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kCancelled, "interrupted"));
}

// An interrupted terminal kills the workers, too; that is no failure of theirs.
TEST_F(JobFailureTest, AStopStaysTheReasonWhateverIsToldAfterIt) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  stop(base::cancelled("interrupted"));
  report_end(1, WorkerEnd::kKilled, "signal 2");
  fail(0, StatusCode::kInternal, "rank 1 is gone");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kCancelled, "interrupted"));
}

TEST_F(JobFailureTest, AStopAfterAFailureDoesNotHideIt) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  fail(0, StatusCode::kUnavailable, "rank 1 is gone");
  pass(100_ms);
  stop(base::cancelled("interrupted"));
  report_end(1, WorkerEnd::kKilled, "signal 9");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kInternal, HasSubstr("signal 9")));
}

TEST_F(JobFailureTest, AWorkerWhoseHostLosesPowerIsNoticedByItsAgentOnly) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  world_.host("n1").kill(chaos::Crash::kPower);
  pass(60_s);
  EXPECT_FALSE(is_over());  // nothing is sent to it, so nothing is missed
  fail(0, StatusCode::kDeadlineExceeded, "rank 1 is silent");
  EXPECT_THAT(outcome(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1 is silent")));
}

}  // namespace
}  // namespace perdure::runtime::coordinator
