#include "runtime/coordinator/run_recorder.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "chaos/sim_files.h"
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

class RunRecorderTest : public ::testing::Test {
 protected:
  explicit RunRecorderTest(const chaos::SimDiskOptions& disk = {})
      : files_(disk, base::SeededRandom(1)) {}

  void open(const std::string& folder) {
    const RecorderOptions options{.folder = folder, .steps = 3, .tokens_per_step = 100, .ranks = 2};
    auto recorder = RunRecorder::open(options, files_, clock_);
    ASSERT_OK(recorder);
    recorder_ = std::move(recorder).value();
  }
  void pass(base::Nanos duration) {
    (void)clock_.call_at(clock_.now() + duration, [] {});
    CHECK(clock_.fire_next());
  }
  void step(const rpc::StepReport& report, base::Nanos duration) {
    pass(duration);
    recorder_->on_step(report);
  }
  // Three steps: 4 s, 1 s and 1 s; the first needs two attempts, the second is skipped.
  void run_three_steps() {
    recorder_->on_ready(Rank(0), {.device = "fake-0", .planned_bytes = 1000});
    recorder_->on_ready(Rank(1), {.device = "fake-1", .planned_bytes = 500});
    recorder_->on_start();
    const rpc::StepReport first{.step = Step(1),
                                .loss = 5.5,
                                .grad_norm = 0.1,
                                .learning_rate = 0.001,
                                .attempts = 2,
                                .digest_before = 0xabc,
                                .step_ms = 3900.5};
    const rpc::StepReport second{.step = Step(2),
                                 .loss = 1.0 / 3.0,
                                 .grad_norm = std::numeric_limits<double>::infinity(),
                                 .learning_rate = 1e-9,
                                 .applied = 0,
                                 .digest_before = 0xffffffffffffffff,
                                 .step_ms = 900};
    const rpc::StepReport third{.step = Step(3), .loss = 4.25, .digest_before = 1};
    step(first, 4_s);
    step(second, 1_s);
    step(third, 1_s);
    recorder_->on_evaluation({.step = Step(3), .loss = 4.5});
    const rpc::Finished finished{.step = Step(3),
                                 .state_digest = 0x51,
                                 .params_digest = 0x52,
                                 .peak_bytes = 900,
                                 .faults_after_warmup = 3};
    recorder_->on_finished(Rank(1), finished);
    recorder_->on_finished(Rank(0), finished);
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
  void write(const std::string& path, std::string_view contents) {
    ASSERT_OK_AND_ASSIGN(auto file, files_.open(path, base::OpenMode::kTruncate));
    ASSERT_OK(file->append(base::as_byte_span(contents)));
  }

  chaos::SimFiles files_;
  base::ManualClock clock_;
  std::unique_ptr<RunRecorder> recorder_;
};

TEST_F(RunRecorderTest, DigestsAndMetricsHaveALineAStep) {
  open("out/run1");
  run_three_steps();
  EXPECT_EQ(text("out/run1/digests.csv"),
            "step,digest\n"
            "0,0000000000000abc\n"
            "1,ffffffffffffffff\n"
            "2,0000000000000001\n"
            "3,0000000000000051\n");
  EXPECT_EQ(text("out/run1/metrics.csv"),
            "step,loss,grad_norm,learning_rate,tokens_per_s,step_ms,attempts,applied\n"
            "1,5.5,0.1,0.001,25,3900.5,2,1\n"
            "2,0.333333333,inf,1e-09,100,900,1,0\n"
            "3,4.25,0,0,100,0,1,1\n");
}

TEST_F(RunRecorderTest, EventsTellTheStory) {
  open("out");
  run_three_steps();
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  std::vector<std::string> kinds;
  const std::vector<Json> all = events("out/events.jsonl");
  for (const Json& event : all) kinds.push_back(event["kind"]);
  ASSERT_THAT(kinds,
              ElementsAre("worker.ready", "worker.ready", "job.start", "step.again", "step.skipped",
                          "evaluation", "worker.finished", "worker.finished", "job.end"));
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i]["seq"], i);
  EXPECT_EQ(all[1]["device"], "fake-1");
  EXPECT_EQ(all[1]["planned_bytes"], 500);
  EXPECT_EQ(all[2]["steps"], 3);
  EXPECT_EQ(all[3]["attempts"], 2);
  EXPECT_EQ(all[4]["step"], 2);
  EXPECT_EQ(all[5]["val_loss"], 4.5);
  EXPECT_EQ(all[6]["rank"], 1);
  EXPECT_EQ(all[8]["outcome"], "ok");
  EXPECT_EQ(all[8]["t_ms"], 7000.0);
}

TEST_F(RunRecorderTest, TheSummaryHasTheNumbersOfTheRun) {
  open("out");
  run_three_steps();
  EXPECT_THAT(text("out/summary.json"), HasSubstr("not found"));
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  const Json summary = Json::parse(text("out/summary.json"));
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
            {"memory",
             {{"planned_bytes_max", 1000}, {"peak_bytes_max", 900}, {"peak_to_plan_max", 1.8}}},
            {"page_faults_after_warmup", 6}}));
}

TEST_F(RunRecorderTest, AFailedJobHasASummaryToo) {
  open("out");
  recorder_->on_start();
  ASSERT_OK(recorder_->finish(base::unavailable("worker 1 \"is\" gone")));
  const Json summary = Json::parse(text("out/summary.json"));
  EXPECT_EQ(summary["outcome"], "unavailable: worker 1 \"is\" gone");
  EXPECT_EQ(summary["steps"], 0);
  EXPECT_EQ(summary["tokens_per_s"], 0.0);
  EXPECT_FALSE(summary.contains("val_loss"));
  EXPECT_EQ(text("out/digests.csv"), "step,digest\n");
}

TEST_F(RunRecorderTest, TextThatIsNoUtf8AndALossThatIsNoNumberCanBeWritten) {
  open("out");
  recorder_->on_start();
  const rpc::StepReport report{.step = Step(1), .loss = std::nan("")};
  step(report, 1_s);
  ASSERT_OK(recorder_->finish(base::not_found("no file 'd\xff\xfe'")));
  const Json summary = Json::parse(text("out/summary.json"));
  EXPECT_THAT(summary["outcome"].get<std::string>(), HasSubstr("no file 'd"));
  EXPECT_TRUE(summary["loss"].is_null());
  EXPECT_EQ(events("out/events.jsonl").back()["kind"], "job.end");
}

TEST_F(RunRecorderTest, ARunOfOneStepHasARate) {
  open("");
  recorder_->on_start();
  const rpc::StepReport report{.step = Step(1)};
  step(report, 2_s);
  ASSERT_OK(recorder_->finish(base::Status::ok()));
  EXPECT_DOUBLE_EQ(recorder_->numbers().tokens_per_s, 50.0);
}

TEST_F(RunRecorderTest, SecondsPerStepFollowTheLastSteps) {
  open("");
  EXPECT_EQ(recorder_->seconds_per_step(), 0.0);
  recorder_->on_start();
  for (uint64_t n = 1; n <= 100; ++n) {
    const rpc::StepReport report{.step = Step(n)};
    step(report, n == 1 ? 10_s : 2_s);
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
  EXPECT_EQ(text("out/metrics.csv"),
            "step,loss,grad_norm,learning_rate,tokens_per_s,step_ms,attempts,applied\n");
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
  for (const char* name : {"events.jsonl", "metrics.csv", "digests.csv"}) {
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
