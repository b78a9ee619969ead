#include "runtime/coordinator/run_recorder.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/hash.h"
#include "chaos/sim_files.h"
#include "parallel/sample_mark.h"
#include "tests/base/manual_clock.h"
#include "tests/testing/matchers.h"

namespace perdure::runtime::coordinator {
namespace {

using namespace base::literals;
using base::Rank;
using base::StatusCode;
using base::Step;
using ::perdure::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr const char* kMetricsHead =
    "step,loss,grad_norm,learning_rate,tokens_per_s,step_ms,attempts,applied\n";
constexpr const char* kLedgerHead = "step,epoch,first_sample,samples,marks\n";

class RunRecorderTest : public ::testing::Test {
 protected:
  explicit RunRecorderTest(const chaos::SimDiskOptions& disk = {})
      : files_(disk, base::SeededRandom(1)) {}

  void open(const std::string& folder, bool continues = false) {
    const RecorderOptions options{
        .folder = folder, .steps = 3, .tokens_per_step = 100, .ranks = 2, .continues = continues};
    recorder_.reset();
    auto recorder = RunRecorder::open(options, files_, clock_);
    ASSERT_OK(recorder);
    recorder_ = std::move(recorder).value();
  }
  void pass(base::Nanos duration) {
    (void)clock_.call_at(clock_.now() + duration, [] {});
    CHECK(clock_.fire_next());
  }
  StepNews step(const protocol::StepReport& report, base::Nanos duration = 1_s) {
    pass(duration);
    return recorder_->on_step(report);
  }
  // A step that consumed what it should.
  static protocol::StepReport good(uint64_t n, uint64_t epoch = 1) {
    return {.step = Step(n),
            .loss = 10.0 - static_cast<double>(n),
            .digest_before = base::mix64(n),
            .epoch = base::Epoch(epoch),
            .first_sample = 8 * (n - 1),
            .sample_count = 8,
            .sample_sum = parallel::sample_marks(8 * (n - 1), 8)};
  }
  static recovery::EpochPlan plan() {
    recovery::EpochPlan plan;
    plan.epoch = base::Epoch(1);
    plan.layout.micro_batches = 4;
    plan.layout.pipelines = {{{{Rank(0), 0, 3}, {Rank(1), 3, 5}}, 0, 4}};
    plan.members = {{base::WorkerId(7), base::Incarnation(1), base::NodeId(0)},
                    {base::WorkerId(2), base::Incarnation(1), base::NodeId(1)}};
    return plan;
  }
  void finish_ranks(uint64_t steps) {
    const protocol::Finished finished{.step = Step(steps),
                                      .state_digest = 0x51,
                                      .params_digest = 0x52,
                                      .peak_bytes = 900,
                                      .faults_after_warmup = 3};
    recorder_->on_finished(Rank(1), finished);
    recorder_->on_finished(Rank(0), finished);
  }
  // Three steps: 4 s, 1 s and 1 s; the first needs two attempts, the second is skipped.
  void run_three_steps() {
    recorder_->on_prepared(Rank(0), {.planned_bytes = 1000, .device = "fake-0"});
    recorder_->on_prepared(Rank(1), {.planned_bytes = 500, .device = "fake-1"});
    recorder_->on_active(plan());
    protocol::StepReport first = good(1);
    first.loss = 5.5;
    first.grad_norm = 0.1;
    first.learning_rate = 0.001;
    first.attempts = 2;
    first.digest_before = 0xabc;
    first.step_ms = 3900.5;
    protocol::StepReport second = good(2);
    second.loss = 1.0 / 3.0;
    second.grad_norm = std::numeric_limits<double>::infinity();
    second.learning_rate = 1e-9;
    second.applied = 0;
    second.digest_before = 0xffffffffffffffff;
    second.step_ms = 900;
    protocol::StepReport third = good(3);
    third.loss = 4.25;
    third.digest_before = 1;
    step(first, 4_s);
    step(second, 1_s);
    step(third, 1_s);
    recorder_->on_evaluation({.step = Step(3), .loss = 4.5});
    finish_ranks(3);
  }
  std::string text(const std::string& path) {
    const auto bytes = base::read_file(files_, path, 1_MiB);
    if (!bytes.is_ok()) return bytes.status().to_string();
    return std::string(base::as_text(*bytes));
  }
  std::vector<Json> events(const std::string& path) {
    std::vector<Json> all;
    std::istringstream lines(text(path));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
  // First fields of the lines after the head.
  std::vector<uint64_t> steps_in(const std::string& path) {
    std::vector<uint64_t> all;
    std::istringstream lines(text(path));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) all.push_back(std::stoull(line));
    return all;
  }
  void write(const std::string& path, std::string_view contents) {
    ASSERT_OK_AND_ASSIGN(auto file, files_.open(path, base::OpenMode::kTruncate));
    ASSERT_OK(file->append(base::as_byte_span(contents)));
  }

  chaos::SimFiles files_;
  base::ManualClock clock_;
  std::unique_ptr<RunRecorder> recorder_;
};

TEST_F(RunRecorderTest, DigestsMetricsAndLedgerHaveALineAStep) {
  open("out/run1");
  run_three_steps();
  EXPECT_EQ(text("out/run1/digests.csv"),
            "step,digest\n"
            "0,0000000000000abc\n"
            "1,ffffffffffffffff\n"
            "2,0000000000000001\n"
            "3,0000000000000051\n");
  EXPECT_EQ(text("out/run1/metrics.csv"), std::string(kMetricsHead) +
                                              "1,5.5,0.1,0.001,25,3900.5,2,1\n"
                                              "2,0.333333333,inf,1e-09,100,900,1,0\n"
                                              "3,4.25,0,0,100,0,1,1\n");
  const auto marks = [](uint64_t first) { return digest_text(parallel::sample_marks(first, 8)); };
  EXPECT_EQ(text("out/run1/ledger.csv"), std::string(kLedgerHead) + "1,1,0,8," + marks(0) +
                                             "\n2,1,8,8," + marks(8) + "\n3,1,16,8," + marks(16) +
                                             "\n");
}

TEST_F(RunRecorderTest, AnEndThatIsToldAgainIsWrittenOnce) {
  open("out");
  run_three_steps();
  const std::string digests = text("out/digests.csv");
  const size_t lines = events("out/events.jsonl").size();
  recorder_->on_finished(Rank(0), {.step = Step(3), .state_digest = 0x51});
  EXPECT_EQ(text("out/digests.csv"), digests);
  EXPECT_EQ(events("out/events.jsonl").size(), lines);
}

TEST_F(RunRecorderTest, EventsTellTheStory) {
  open("out");
  run_three_steps();
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  std::vector<std::string> kinds;
  const std::vector<Json> all = events("out/events.jsonl");
  for (const Json& event : all) kinds.push_back(event["kind"]);
  ASSERT_THAT(kinds, ElementsAre("worker.prepared", "worker.prepared", "epoch.plan", "step.again",
                                 "step.skipped", "evaluation", "worker.finished", "worker.finished",
                                 "job.end"));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["seq"], i);
  EXPECT_EQ(all[1]["device"], "fake-1");
  EXPECT_EQ(all[1]["planned_bytes"], 500);
  EXPECT_EQ(all[2]["layout"],
            "rank 0: layers 0-2 of micro-batches 0-3 on worker 7; "
            "rank 1: layers 3-4 of micro-batches 0-3 on worker 2");
  EXPECT_EQ(all[3]["attempts"], 2);
  EXPECT_EQ(all[4]["step"], 2);
  EXPECT_EQ(all[5]["val_loss"], 4.5);
  EXPECT_EQ(all[6]["rank"], 1);
  EXPECT_EQ(all[8]["outcome"], "ok");
  EXPECT_EQ(all[8]["t_ms"], 7000.0);
}

TEST_F(RunRecorderTest, TheSummaryTellsWhatSnapshotsHaveCost) {
  open("out");
  recorder_->on_finished(Rank(0), {.compute_seconds = 10.0,
                                   .snapshots_taken = 4,
                                   .snapshot_seconds = 0.5,
                                   .snapshot_bytes = 700});
  recorder_->on_finished(Rank(1), {.compute_seconds = 10.0,
                                   .snapshots_taken = 3,
                                   .snapshots_skipped = 1,
                                   .snapshot_seconds = 0.25,
                                   .snapshot_bytes = 900});
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  EXPECT_EQ(Json::parse(text("out/summary.json"))["snapshots"],
            Json({{"taken", 7}, {"skipped", 1}, {"bytes_max", 900}, {"share_of_time_max", 0.05}}));
}

TEST_F(RunRecorderTest, TheSummaryHasTheNumbersOfTheRun) {
  open("out");
  run_three_steps();
  EXPECT_THAT(text("out/summary.json"), HasSubstr("not found"));
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  Json summary = Json::parse(text("out/summary.json"));
  EXPECT_EQ(
      summary,
      Json({{"outcome", "ok"},
            {"steps", 3},
            {"loss", 4.25},
            {"val_loss", 4.5},
            {"tokens_per_s", 100.0},  // the first step left out
            {"params_digest", "0000000000000052"},
            {"state_digest", "0000000000000051"},
            {"workers", 2},
            {"attempts_again", 1},
            {"steps_skipped", 1},
            {"snapshots",
             {{"taken", 0}, {"skipped", 0}, {"bytes_max", 0}, {"share_of_time_max", 0.0}}},
            {"epochs", 1},
            {"steps_repeated", 0},
            {"memory",
             {{"planned_bytes_max", 1000}, {"peak_bytes_max", 900}, {"peak_to_plan_max", 1.8}}},
            {"page_faults_after_warmup", 6}}));
}

// -- a step that is told again

TEST_F(RunRecorderTest, EachStepIsWrittenOnce) {
  open("out");
  EXPECT_EQ(step(good(1)), StepNews::kNew);
  EXPECT_EQ(step(good(2)), StepNews::kNew);
  EXPECT_EQ(step(good(2)), StepNews::kRepeated);
  EXPECT_EQ(step(good(1, 5)), StepNews::kRepeated);  // in a later epoch, with the same bits
  EXPECT_EQ(step(good(3)), StepNews::kNew);
  EXPECT_THAT(steps_in("out/metrics.csv"), ElementsAre(1, 2, 3));
  EXPECT_THAT(steps_in("out/digests.csv"), ElementsAre(0, 1, 2));
  EXPECT_THAT(steps_in("out/ledger.csv"), ElementsAre(1, 2, 3));
  EXPECT_EQ(recorder_->numbers().steps_repeated, 2u);
  EXPECT_EQ(recorder_->steps_known(), Step(3));
}

TEST_F(RunRecorderTest, AGapIsNotWritten) {
  open("out");
  EXPECT_EQ(step(good(2)), StepNews::kGap);
  EXPECT_EQ(step(good(1)), StepNews::kNew);
  EXPECT_EQ(step(good(3)), StepNews::kGap);
  EXPECT_EQ(step(good(2)), StepNews::kNew);
  EXPECT_EQ(step(good(3)), StepNews::kNew);
  EXPECT_THAT(steps_in("out/metrics.csv"), ElementsAre(1, 2, 3));
}

TEST_F(RunRecorderTest, AStepThatGaveOtherBitsIsTold) {
  open("out");
  step(good(1));
  step(good(2));
  protocol::StepReport other = good(2);
  other.digest_before ^= 1;
  EXPECT_EQ(step(other), StepNews::kDiffers);
  EXPECT_THAT(steps_in("out/digests.csv"), ElementsAre(0, 1));
  const std::vector<Json> all = events("out/events.jsonl");
  EXPECT_EQ(all.back()["kind"], "step.differs");
  EXPECT_EQ(all.back()["digest_before"], digest_text(other.digest_before));
}

TEST_F(RunRecorderTest, EvaluationsThatAreToldAgainAreLeftOut) {
  open("out");
  recorder_->on_evaluation({.step = Step(2), .loss = 3.0});
  recorder_->on_evaluation({.step = Step(2), .loss = 3.0});
  recorder_->on_evaluation({.step = Step(1), .loss = 9.0});
  recorder_->on_evaluation({.step = Step(4), .loss = 2.0});
  EXPECT_EQ(events("out/events.jsonl").size(), 2u);
  EXPECT_EQ(recorder_->numbers().val_loss, 2.0);
}

TEST_F(RunRecorderTest, SamplesThatAreNotThoseOfTheStepAreTold) {
  open("out");
  protocol::StepReport wrong = good(1);
  wrong.sample_sum += 1;
  step(wrong);
  EXPECT_EQ(events("out/events.jsonl").front()["kind"], "ledger.wrong");
}

// -- continuing after a crash

class ContinuingTest : public RunRecorderTest {
 protected:
  static constexpr uint64_t kSteps = 12;
  static constexpr const char* kNames[] = {"metrics.csv", "digests.csv", "ledger.csv",
                                           "events.jsonl"};
  // What an undisturbed run leaves, and the files of a run that died after six steps.
  void SetUp() override {
    open("whole");
    for (uint64_t n = 1; n <= kSteps; ++n) step(good(n));
    recorder_->on_evaluation({.step = Step(kSteps), .loss = 1.5});
    finish_ranks(kSteps);
    ASSERT_OK(recorder_->finish(base::Status::ok()));
    open("dead");
    for (uint64_t n = 1; n <= 6; ++n) step(good(n));
    recorder_->on_event(base::Event("some.event").with("n", 1));
    recorder_->on_evaluation({.step = Step(6), .loss = 2.5});
    recorder_.reset();
    for (const char* name : kNames) dead_[name] = text(std::string("dead/") + name);
  }
  void restore(const std::string& cut, size_t length) {
    for (const auto& [name, contents] : dead_)
      write("dead/" + name, name == cut ? contents.substr(0, length) : contents);
  }
  // Goes on as a coordinator does: reports after what is known are told again, then the rest.
  void go_on() {
    open("dead", true);
    EXPECT_LE(recorder_->steps_known(), Step(6));
    for (uint64_t n = recorder_->steps_known().value() + 1; n <= kSteps; ++n)
      EXPECT_EQ(step(good(n)), StepNews::kNew) << n;
    EXPECT_EQ(step(good(3)), StepNews::kRepeated);
    finish_ranks(kSteps);
    ASSERT_OK(recorder_->finish(base::Status::ok()));
  }
  void expect_same_files() {
    EXPECT_EQ(text("dead/digests.csv"), text("whole/digests.csv"));
    EXPECT_EQ(text("dead/ledger.csv"), text("whole/ledger.csv"));
    EXPECT_EQ(steps_in("dead/metrics.csv"), steps_in("whole/metrics.csv"));
    EXPECT_EQ(text("dead/metrics.csv").substr(0, 4), "step");
    EXPECT_EQ(events("dead/events.jsonl").back()["kind"], "job.end");  // all lines parse
  }
  std::map<std::string, std::string> dead_;
};

TEST_F(ContinuingTest, AWholeRunGoesOn) {
  restore("", 0);
  go_on();
  expect_same_files();
  Json summary = Json::parse(text("dead/summary.json"));
  EXPECT_EQ(summary["steps"], kSteps);
  EXPECT_EQ(summary["loss"], 10.0 - kSteps);
  EXPECT_EQ(summary["val_loss"], 2.5);
  EXPECT_EQ(summary["tokens_per_s"], 100.0);  // of this life
}

TEST_F(ContinuingTest, EveryFileMayEndAtEveryByte) {
  for (const char* name : kNames) {
    for (size_t length = 0; length <= dead_[name].size(); ++length) {
      SCOPED_TRACE(std::string(name) + " cut to " + std::to_string(length));
      restore(name, length);
      go_on();
      expect_same_files();
      if (HasFailure()) return;
    }
  }
}

TEST_F(ContinuingTest, ADeathAtEachWriteLosesNothing) {
  for (uint64_t actions = 0; actions < 60; ++actions) {
    SCOPED_TRACE(actions);
    open("dead");
    files_.disconnect_after(actions);
    for (uint64_t n = 1; n <= 6; ++n) step(good(n));
    files_.disconnect();
    recorder_.reset();
    files_.reconnect();
    go_on();
    expect_same_files();
    if (HasFailure()) return;
  }
}

TEST_F(ContinuingTest, FilesThatAreMissingAreBegunAnew) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    restore("", 0);
    ASSERT_OK(files_.remove(std::string("dead/") + name));
    go_on();
    expect_same_files();
  }
}

TEST_F(ContinuingTest, BitsAreComparedWithThoseOfTheEarlierLife) {
  restore("", 0);
  open("dead", true);
  protocol::StepReport other = good(4);
  other.digest_before ^= 1;
  EXPECT_EQ(step(other), StepNews::kDiffers);
}

TEST_F(ContinuingTest, AFinishedRunIsContinuedToo) {
  restore("", 0);
  go_on();
  open("dead", true);
  EXPECT_EQ(recorder_->steps_known(), Step(kSteps));
  finish_ranks(kSteps);
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  expect_same_files();
}

TEST_F(ContinuingTest, EvaluationsOfTheEarlierLifeAreNotRepeated) {
  restore("", 0);
  open("dead", true);
  const size_t before = events("dead/events.jsonl").size();
  recorder_->on_evaluation({.step = Step(6), .loss = 2.5});
  EXPECT_EQ(events("dead/events.jsonl").size(), before);
}

TEST_F(ContinuingTest, ALineThatIsWrongIsAnError) {
  restore("", 0);
  write("dead/metrics.csv", std::string(kMetricsHead) + "1,2,3\n");
  const RecorderOptions options{.folder = "dead", .continues = true};
  EXPECT_THAT(RunRecorder::open(options, files_, clock_),
              StatusIs(StatusCode::kDataLoss, HasSubstr("wrong line '1,2,3'")));
}

// -- odd runs

TEST_F(RunRecorderTest, AFailedJobHasASummaryToo) {
  open("out");
  ASSERT_OK(recorder_->finish(base::unavailable("worker 1 \"is\" gone")));
  Json summary = Json::parse(text("out/summary.json"));
  EXPECT_EQ(summary["outcome"], "unavailable: worker 1 \"is\" gone");
  EXPECT_EQ(summary["steps"], 0);
  EXPECT_EQ(summary["tokens_per_s"], 0.0);
  EXPECT_FALSE(summary.contains("val_loss"));
  EXPECT_EQ(text("out/digests.csv"), "step,digest\n");
}

TEST_F(RunRecorderTest, TextThatIsNoUtf8AndALossThatIsNoNumberCanBeWritten) {
  open("out");
  protocol::StepReport report = good(1);
  report.loss = std::nan("");
  step(report);
  ASSERT_OK(recorder_->finish(base::not_found("no file 'd\xff\xfe'")));
  Json summary = Json::parse(text("out/summary.json"));
  EXPECT_THAT(summary["outcome"].get<std::string>(), HasSubstr("no file 'd"));
  EXPECT_TRUE(summary["loss"].is_null());
  EXPECT_EQ(events("out/events.jsonl").back()["kind"], "job.end");
}

TEST_F(RunRecorderTest, ARunOfOneStepHasARate) {
  open("");
  recorder_->on_active(plan());
  step(good(1), 2_s);
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  EXPECT_DOUBLE_EQ(recorder_->numbers().tokens_per_s, 50.0);
}

TEST_F(RunRecorderTest, SecondsPerStepFollowTheLastSteps) {
  open("");
  EXPECT_EQ(recorder_->seconds_per_step(), 0.0);
  recorder_->on_active(plan());
  for (uint64_t n = 1; n <= 100; ++n) {
    step(good(n), n == 1 ? 10_s : 2_s);
    if (n == 1) {
      EXPECT_DOUBLE_EQ(recorder_->seconds_per_step(), 10.0);
    }
  }
  EXPECT_NEAR(recorder_->seconds_per_step(), 2.0, 0.01);
}

TEST_F(RunRecorderTest, WithoutAFolderItKeepsTheNumbersOnly) {
  open("");
  run_three_steps();
  EXPECT_OK(recorder_->finish(base::Status::ok()));
  const RunNumbers& numbers = recorder_->numbers();
  EXPECT_EQ(numbers.steps, 3u);
  EXPECT_EQ(numbers.val_loss, 4.5);
  EXPECT_EQ(numbers.state_digest, 0x51u);
  EXPECT_EQ(numbers.step_attempts_again, 1u);
  EXPECT_EQ(numbers.steps_skipped, 1u);
  EXPECT_EQ(numbers.epochs, 1u);
  EXPECT_DOUBLE_EQ(numbers.tokens_per_s, 100.0);
  ASSERT_OK_AND_ASSIGN(const auto names, files_.list("/"));
  EXPECT_TRUE(names.empty());
}

TEST_F(RunRecorderTest, FilesOfAnEarlierRunAreReplaced) {
  open("out");
  run_three_steps();
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  open("out");
  EXPECT_EQ(text("out/digests.csv"), "step,digest\n");
  EXPECT_EQ(text("out/metrics.csv"), kMetricsHead);
  EXPECT_EQ(text("out/ledger.csv"), kLedgerHead);
  EXPECT_EQ(text("out/events.jsonl"), "");
  EXPECT_THAT(text("out/summary.json"), HasSubstr("not found"));
  run_three_steps();
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  EXPECT_EQ(events("out/events.jsonl").size(), 9u);
}

TEST_F(RunRecorderTest, AFolderThatCannotBeMadeIsAnError) {
  write("taken", "a file");
  const RecorderOptions options{.folder = "taken/run1"};
  EXPECT_THAT(RunRecorder::open(options, files_, clock_),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("output folder 'taken/run1'")));
}

TEST_F(RunRecorderTest, EveryFileThatCannotBeMadeIsAnError) {
  const RecorderOptions options{.folder = "out"};
  for (const char* name : {"events.jsonl", "metrics.csv", "digests.csv", "ledger.csv"}) {
    for (const chaos::FileAction action : {chaos::FileAction::kOpen, chaos::FileAction::kWrite}) {
      if (action == chaos::FileAction::kWrite && std::string(name) == "events.jsonl") continue;
      files_.add_fault(
          {.action = action, .path_part = name, .error = base::failed_precondition("read-only")});
      EXPECT_THAT(RunRecorder::open(options, files_, clock_),
                  StatusIs(StatusCode::kFailedPrecondition, HasSubstr("'out'")))
          << name;
    }
  }
  files_.add_fault({.action = chaos::FileAction::kRemove,
                    .path_part = "summary.json",
                    .error = base::failed_precondition("read-only")});
  EXPECT_THAT(RunRecorder::open(options, files_, clock_),
              StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_OK(RunRecorder::open(options, files_, clock_));
}

TEST_F(ContinuingTest, EveryFileThatCannotBeReadOrReplacedIsAnError) {
  const RecorderOptions options{.folder = "dead", .continues = true};
  for (const char* name : kNames) {
    for (const chaos::FileAction action :
         {chaos::FileAction::kRead, chaos::FileAction::kWrite, chaos::FileAction::kRename}) {
      restore("events.jsonl", dead_["events.jsonl"].size() - 3);
      files_.add_fault(
          {.action = action, .path_part = name, .error = base::failed_precondition("read-only")});
      EXPECT_THAT(RunRecorder::open(options, files_, clock_),
                  StatusIs(StatusCode::kFailedPrecondition))
          << name << " " << static_cast<int>(action);
    }
  }
  go_on();
  expect_same_files();
}

class FullDiskTest : public RunRecorderTest {
 protected:
  FullDiskTest() : RunRecorderTest({.capacity_bytes = 400}) {}
};

TEST_F(FullDiskTest, TheRunGoesOnAndTheEndTells) {
  open("out");
  run_three_steps();
  EXPECT_THAT(recorder_->finish(base::Status::ok()), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(recorder_->numbers().steps, 3u);
  EXPECT_EQ(recorder_->numbers().params_digest, 0x52u);
  EXPECT_LE(files_.used_bytes(), 400u);
}

TEST_F(RunRecorderTest, AnErrorThatPassesIsToldAndTheRestIsWritten) {
  open("out");
  files_.add_fault({.action = chaos::FileAction::kWrite,
                    .path_part = "digests.csv",
                    .skip = 1,
                    .error = base::data_loss("bad sector")});
  run_three_steps();
  EXPECT_THAT(recorder_->finish(base::Status::ok()),
              StatusIs(StatusCode::kDataLoss, HasSubstr("bad sector")));
  EXPECT_EQ(text("out/digests.csv"),
            "step,digest\n0,0000000000000abc\n2,0000000000000001\n3,0000000000000051\n");
  EXPECT_EQ(Json::parse(text("out/summary.json"))["steps"], 3);
}

}  // namespace
}  // namespace perdure::runtime::coordinator
