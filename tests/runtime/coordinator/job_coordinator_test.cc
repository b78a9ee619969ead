// A job that goes well, from the first Hello to the last Goodbye, in calm and in rough networks.

#include "runtime/coordinator/job_coordinator.h"

#include <algorithm>
#include <cstdio>

#include "base/sleep.h"
#include "tests/runtime/coordinator/coordinator_harness.h"

namespace perdure::runtime::coordinator {
namespace {

using namespace base::literals;
using base::StatusCode;
using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;

class JobCoordinatorTest : public CoordinatorTest {};

TEST_F(JobCoordinatorTest, AWholeJob) {
  start_coordinator(3);
  for (const uint32_t w : {2u, 0u, 1u}) ASSERT_NO_FATAL_FAILURE(join_and_be_ready(w));
  for (auto& worker : workers_) {
    ASSERT_OK_AND_ASSIGN(const rpc::Start start, worker->expect<rpc::Start>());
    ASSERT_EQ(start.addresses.size(), 3u);
    for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(start.addresses[r], ready_of(r).address) << r;
  }
  ASSERT_OK(workers_[0]->send(rpc::StepReport{.step = base::Step(1)}));
  ASSERT_OK(workers_[0]->send(rpc::EvaluationReport{.step = base::Step(1)}));
  ASSERT_OK(workers_[0]->send(rpc::StepReport{.step = base::Step(2)}));
  pass(1_s);
  EXPECT_FALSE(is_over());
  ASSERT_NO_FATAL_FAILURE(finish_job());
  EXPECT_THAT(journal_.lines,
              ElementsAre("ready 2 fake-2", "ready 0 fake-0", "ready 1 fake-1", "start", "step 1",
                          "evaluation 1", "step 2", "finished 0", "finished 1", "finished 2"));
  for (auto& worker : workers_) {
    EXPECT_THAT(worker->receive(), StatusIs(StatusCode::kUnavailable));
  }
}

TEST_F(JobCoordinatorTest, AJobOfOne) {
  ASSERT_NO_FATAL_FAILURE(start_job(1));
  ASSERT_NO_FATAL_FAILURE(finish_job());
  EXPECT_THAT(journal_.lines, ElementsAre("ready 0 fake-0", "start", "finished 0"));
}

TEST_F(JobCoordinatorTest, ItStaysOutOfTheWayOfAStartedJob) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  pass(24 * 3600_s);  // no deadline but that of joining
  ASSERT_NO_FATAL_FAILURE(finish_job());
}

TEST_F(JobCoordinatorTest, NobodyLeavesBeforeTheLastHasFinished) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  ASSERT_OK(workers_[1]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5001}));
  EXPECT_THAT(workers_[1]->receive(), StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(is_over());
  ASSERT_OK(workers_[0]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5000}));
  for (auto& worker : workers_) EXPECT_OK(worker->expect<rpc::Goodbye>());
  EXPECT_OK(outcome());
}

TEST_F(JobCoordinatorTest, WhatAFinishedWorkerSaysIsNotHeard) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  const rpc::Finished finished{.step = base::Step(4), .peak_bytes = 5000};
  ASSERT_OK(workers_[0]->send(finished));
  ASSERT_OK(workers_[0]->send(finished));
  ASSERT_OK(workers_[0]->send(rpc::StepReport{.step = base::Step(5)}));
  pass(5_ms);
  ASSERT_OK(workers_[1]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5001}));
  for (auto& worker : workers_) EXPECT_OK(worker->expect<rpc::Goodbye>());
  EXPECT_OK(outcome());
  std::sort(journal_.lines.begin(), journal_.lines.end());
  EXPECT_THAT(journal_.lines,
              ElementsAre("finished 0", "finished 1", "ready 0 fake-0", "ready 1 fake-1", "start"));
}

TEST_F(JobCoordinatorTest, AWorkerThatHasFinishedMayGo) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  ASSERT_OK(workers_[1]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5001}));
  pass(1_s);
  workers_[1]->close();
  on_coordinator([](JobCoordinator& coordinator) {
    coordinator.worker_ended(base::WorkerId(1), WorkerEnd::kKilled, "signal 9");
  });
  pass(10_s);
  ASSERT_OK(workers_[0]->send(rpc::Finished{.step = base::Step(4), .peak_bytes = 5000}));
  EXPECT_OK(workers_[0]->expect<rpc::Goodbye>());
  EXPECT_OK(outcome());
}

TEST_F(JobCoordinatorTest, LateMessagesDoNoHarm) {
  ASSERT_NO_FATAL_FAILURE(start_job(2));
  ASSERT_NO_FATAL_FAILURE(finish_job());
  const size_t lines = journal_.lines.size();
  for (int i = 0; i < 3; ++i) {
    (void)workers_[0]->send(rpc::StepReport{.step = base::Step(9)}).is_ok();
    (void)workers_[1]->send(rpc::Failed{.code = 11, .text = "too late"}).is_ok();
    pass(1_s);
  }
  on_coordinator([](JobCoordinator& coordinator) {
    coordinator.worker_ended(base::WorkerId(0), WorkerEnd::kKilled, "signal 9");
  });
  pass(10_s);
  EXPECT_OK(*process_->outcome());
  EXPECT_EQ(journal_.lines.size(), lines);
  EXPECT_THAT(make_peer("stranger")->connect(), StatusIs(StatusCode::kUnavailable));
}

// A worker that lives by itself, at a pace of its own. Ends after Goodbye; else says why not.
base::Task<base::Status> live(chaos::SimHost& host, uint32_t worker, base::Nanos pace) {
  base::Clock& clock = host.clock();
  const base::Nanos end = clock.now() + 300_s;
  CO_RETURN_IF_ERROR(co_await base::sleep_for(clock, pace));
  const base::Address address("coordinator", 7);
  CO_ASSIGN_OR_RETURN(auto channel, co_await host.network().connect(address, end));
  rpc::MessageChannel messages(std::move(channel));
  CO_RETURN_IF_ERROR(co_await messages.send(1, hello_of(worker).encode(), end));
  CO_ASSIGN_OR_RETURN(const rpc::Frame assigned, co_await messages.receive(end));
  CO_ASSIGN_OR_RETURN(const rpc::Assignment job, rpc::Assignment::decode(assigned.payload));
  CO_RETURN_IF_ERROR(co_await base::sleep_for(clock, pace));
  CO_RETURN_IF_ERROR(co_await messages.send(3, ready_of(worker).encode(), end));
  CO_ASSIGN_OR_RETURN(const rpc::Frame started, co_await messages.receive(end));
  CO_ASSIGN_OR_RETURN(const rpc::Start start, rpc::Start::decode(started.payload));
  if (start.addresses.at(worker) != ready_of(worker).address) co_return base::internal("address");
  for (uint64_t step = 1; step <= 20 && job.rank == base::Rank(0); ++step) {
    const rpc::StepReport report{.step = base::Step(step)};
    CO_RETURN_IF_ERROR(co_await messages.send(5, report.encode(), end));
    CO_RETURN_IF_ERROR(co_await base::sleep_for(clock, pace));
  }
  const rpc::Finished finished{.step = base::Step(20), .peak_bytes = 5000 + worker};
  CO_RETURN_IF_ERROR(co_await messages.send(7, finished.encode(), end));
  CO_ASSIGN_OR_RETURN(const rpc::Frame goodbye, co_await messages.receive(end));
  if (goodbye.type != 9) co_return base::internal("no goodbye");
  co_return base::Status::ok();
}

// One job over links that delay, lose and reorder; what the observer heard.
class RoughJob : public CoordinatorTest {
 public:
  explicit RoughJob(uint64_t seed) : CoordinatorTest(seed) {}
  void TestBody() override {}

  void run(std::optional<base::Status> (&ends)[3]) {
    start_coordinator(3);
    for (const char* name : {"n0", "n1", "n2"}) {
      const chaos::LinkOptions rough{.delay = 2_ms,
                                     .jitter_mean = 30_ms,
                                     .loss = 0.05,
                                     .duplicate = 0.05,
                                     .reorder = 0.1,
                                     .reorder_delay = 50_ms,
                                     .window_bytes = 64};
      world_.network().set_link({.from = name, .to = "coordinator"}, rough);
      world_.network().set_link({.from = "coordinator", .to = name}, rough);
    }
    for (uint32_t w = 0; w < 3; ++w) {
      const base::Nanos pace(static_cast<int64_t>(world_.random().uniform_int(200'000'000)));
      chaos::SimHost& host = world_.host("n" + std::to_string(w));
      host.spawn(base::store_result(live(host, w, pace), ends[w]));
    }
    outcome_ = outcome();
    pass(10_s);
  }

  const std::vector<std::string>& lines() const { return journal_.lines; }
  uint64_t trace_hash() { return world_.trace().hash(); }
  base::Status outcome_;
};

TEST(RoughJobTest, EverySeedHasTheSameOutcome) {
  for (uint64_t seed = testing::test_seed(); seed < testing::test_seed() + 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::optional<base::Status> ends[3];
    RoughJob job(seed);
    job.run(ends);
    EXPECT_OK(job.outcome_);
    for (const auto& end : ends) {
      ASSERT_TRUE(end.has_value());
      EXPECT_OK(*end);
    }
    std::vector<std::string> lines = job.lines();
    ASSERT_EQ(lines.size(), 3u + 1u + 20u + 3u);
    EXPECT_EQ(lines[3], "start");
    std::vector<std::string> steps;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(steps),
                 [](const std::string& line) { return line.starts_with("step"); });
    for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], "step " + std::to_string(i + 1));
    std::sort(lines.begin(), lines.end());
    EXPECT_EQ(std::unique(lines.begin(), lines.end()), lines.end());
  }
}

TEST(RoughJobTest, ASeedRepeats) {
  std::vector<uint64_t> hashes;
  for (const uint64_t seed : {testing::test_seed(), testing::test_seed()}) {
    std::optional<base::Status> ends[3];
    RoughJob job(seed);
    job.run(ends);
    hashes.push_back(job.trace_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

}  // namespace
}  // namespace perdure::runtime::coordinator
