#include "runtime/coordinator/run_recorder.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "parallel/sample_mark.h"

namespace perdure::runtime::coordinator {
namespace {

constexpr size_t kDigestsKept = 256;  // of steps that may be reported again

// "rank 0: layers 0-2 of micro-batches 0-3 on worker 0; ..."
std::string layout_text(const recovery::EpochPlan& plan) {
  std::string text;
  for (const parallel::PipelinePlace& pipeline : plan.layout.pipelines) {
    for (const parallel::StagePlace& stage : pipeline.stages) {
      if (stage.rank.value() >= 64) return text + "; ...";
      text += text.empty() ? "" : "; ";
      text += "rank " + std::to_string(stage.rank.value()) + ": layers " +
              std::to_string(stage.layer_begin) + "-" + std::to_string(stage.layer_end - 1) +
              " of micro-batches " + std::to_string(pipeline.micro_batch_begin) + "-" +
              std::to_string(pipeline.micro_batch_end - 1) + " on worker " +
              std::to_string(plan.members[stage.rank.value()].worker.value());
    }
  }
  return text;
}

std::string number_text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.9g", value);
  return buffer;
}

}  // namespace

std::string digest_text(uint64_t digest) {
  char buffer[17];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(digest));
  return buffer;
}

RunRecorder::RunRecorder(const RecorderOptions& options, base::FileSystem& files,
                         base::Clock& clock)
    : options_(options),
      files_(files),
      clock_(clock),
      started_(clock.now()),
      after_first_step_(started_),
      last_step_(started_) {}

base::Result<std::unique_ptr<RunRecorder>> RunRecorder::open(const RecorderOptions& options,
                                                             base::FileSystem& files,
                                                             base::Clock& clock) {
  std::unique_ptr<RunRecorder> recorder(new RunRecorder(options, files, clock));
  if (!options.folder.empty()) {
    const base::Status opened = recorder->open_files();
    if (!opened.is_ok()) return opened.annotate("output folder '" + options.folder + "'");
  }
  return recorder;
}

base::Status RunRecorder::open_files() {
  RETURN_IF_ERROR(files_.make_dirs(options_.folder));
  const std::string lead = options_.folder + "/";
  std::vector<const char*> stale = {"summary.json"};
  if (options_.continues) {
    RETURN_IF_ERROR(continue_files());
  } else {
    stale.push_back("events.jsonl");
  }
  for (const char* name : stale) {
    const base::Status removed = files_.remove(lead + name);
    if (!removed.is_ok() && removed.code() != base::StatusCode::kNotFound) return removed;
  }
  const auto mode = resumed_ > 0 ? base::OpenMode::kAppend : base::OpenMode::kTruncate;
  ASSIGN_OR_RETURN(events_, base::EventLog::open(files_, lead + "events.jsonl", clock_));
  ASSIGN_OR_RETURN(metrics_, files_.open(lead + "metrics.csv", mode));
  ASSIGN_OR_RETURN(digests_, files_.open(lead + "digests.csv", mode));
  ASSIGN_OR_RETURN(ledger_, files_.open(lead + "ledger.csv", mode));
  if (resumed_ > 0) return first_error_;
  write_line(metrics_.get(),
             "step,loss,grad_norm,learning_rate,tokens_per_s,step_ms,attempts,applied\n");
  write_line(digests_.get(), "step,digest\n");
  write_line(ledger_.get(), "step,epoch,first_sample,samples,marks\n");
  return first_error_;
}

void RunRecorder::keep(base::Status status) {
  if (first_error_.is_ok() && !status.is_ok()) first_error_ = std::move(status);
}

void RunRecorder::write_event(const base::Event& event) {
  if (events_ != nullptr) keep(events_->write(event));
}

void RunRecorder::write_line(base::File* file, const std::string& line) {
  if (file != nullptr) keep(file->append(base::as_byte_span(line)));
}

void RunRecorder::on_event(const base::Event& event) { write_event(event); }

void RunRecorder::on_prepared(base::Rank rank, const protocol::Prepared& prepared) {
  planned_bytes_[rank] = prepared.planned_bytes;
  numbers_.planned_bytes_max = std::max(numbers_.planned_bytes_max, prepared.planned_bytes);
  write_event(base::Event("worker.prepared")
                  .with("rank", rank)
                  .with("device", prepared.device)
                  .with("planned_bytes", prepared.planned_bytes));
}

void RunRecorder::on_active(const recovery::EpochPlan& plan) {
  ++numbers_.epochs;
  if (numbers_.steps == resumed_) started_ = clock_.now();
  last_step_ = clock_.now();
  write_event(base::Event("epoch.plan")
                  .with("epoch", plan.epoch)
                  .with("resume_step", plan.resume.step)
                  .with("layout", layout_text(plan)));
}

// Reports come again after a failure, and from ranks that are asked for what is missing.
StepNews RunRecorder::judge(const protocol::StepReport& report) {
  if (report.step.value() > numbers_.steps + 1) return StepNews::kGap;
  if (report.step.value() == numbers_.steps + 1) return StepNews::kNew;
  ++numbers_.steps_repeated;
  const auto known = digests_before_.find(report.step);
  const bool differs = known != digests_before_.end() && known->second != report.digest_before;
  return differs ? StepNews::kDiffers : StepNews::kRepeated;
}

StepNews RunRecorder::on_step(const protocol::StepReport& report) {
  const StepNews news = judge(report);
  if (news == StepNews::kDiffers) {
    write_event(base::Event("step.differs")
                    .with("step", report.step)
                    .with("digest_before", digest_text(report.digest_before)));
  }
  if (news != StepNews::kNew) return news;
  const base::Nanos now = clock_.now();
  const double seconds = std::max(base::to_seconds(now - last_step_), 1e-9);
  last_step_ = now;
  if (report.step.value() == resumed_ + 1) after_first_step_ = now;
  smoothed_step_s_ = smoothed_step_s_ == 0.0 ? seconds : 0.9 * smoothed_step_s_ + 0.1 * seconds;
  ++numbers_.steps;
  numbers_.loss = report.loss;
  numbers_.step_attempts_again += report.attempts - 1;
  numbers_.steps_skipped += report.applied == 0 ? 1 : 0;
  digests_before_[report.step] = report.digest_before;
  while (digests_before_.size() > kDigestsKept) digests_before_.erase(digests_before_.begin());
  write_step(report, static_cast<double>(options_.tokens_per_step) / seconds);
  return news;
}

// The metrics come last: after a crash between the lines they say which step is complete.
void RunRecorder::write_step(const protocol::StepReport& report, double tokens_per_s) {
  const std::string step = std::to_string(report.step.value());
  write_line(digests_.get(), std::to_string(report.step.value() - 1) + "," +
                                 digest_text(report.digest_before) + "\n");
  write_line(ledger_.get(), step + "," + std::to_string(report.epoch.value()) + "," +
                                std::to_string(report.first_sample) + "," +
                                std::to_string(report.sample_count) + "," +
                                digest_text(report.sample_sum) + "\n");
  write_line(metrics_.get(),
             step + "," + number_text(report.loss) + "," + number_text(report.grad_norm) + "," +
                 number_text(report.learning_rate) + "," + number_text(tokens_per_s) + "," +
                 number_text(report.step_ms) + "," + std::to_string(report.attempts) + "," +
                 std::to_string(report.applied) + "\n");
  if (report.sample_sum != parallel::sample_marks(report.first_sample, report.sample_count)) {
    write_event(base::Event("ledger.wrong")
                    .with("step", report.step)
                    .with("reason", "the samples that were read are not those of the step"));
  }
  if (report.attempts > 1) {
    write_event(base::Event("step.again")
                    .with("step", report.step)
                    .with("attempts", report.attempts)
                    .with("reason", report.step.value() == 1
                                        ? "the first step finds the gradient exponents"
                                        : "gradients did not fit their exponents"));
  }
  if (report.applied == 0) {
    write_event(base::Event("step.skipped")
                    .with("step", report.step)
                    .with("reason", "gradients are not finite"));
  }
}

void RunRecorder::on_evaluation(const protocol::EvaluationReport& report) {
  if (report.step <= evaluated_) return;  // an epoch that begins there evaluates again
  evaluated_ = report.step;
  numbers_.val_loss = report.loss;
  write_event(base::Event("evaluation").with("step", report.step).with("val_loss", report.loss));
}

// Ranks say it again to a coordinator that was away.
void RunRecorder::on_finished(base::Rank rank, const protocol::Finished& finished) {
  if (!finished_.insert(rank).second) return;  // told again
  numbers_.params_digest = finished.params_digest;
  numbers_.state_digest = finished.state_digest;
  numbers_.peak_bytes_max = std::max(numbers_.peak_bytes_max, finished.peak_bytes);
  numbers_.faults_after_warmup += finished.faults_after_warmup;
  numbers_.snapshots_taken += finished.snapshots_taken;
  numbers_.snapshots_skipped += finished.snapshots_skipped;
  numbers_.snapshot_bytes_max = std::max(numbers_.snapshot_bytes_max, finished.snapshot_bytes);
  if (finished.compute_seconds > 0.0) {
    numbers_.snapshot_share_max =
        std::max(numbers_.snapshot_share_max, finished.snapshot_seconds / finished.compute_seconds);
  }
  const double planned = static_cast<double>(planned_bytes_[rank]);
  if (planned > 0.0) {
    numbers_.peak_to_plan_max =
        std::max(numbers_.peak_to_plan_max, static_cast<double>(finished.peak_bytes) / planned);
  }
  write_event(base::Event("worker.finished")
                  .with("rank", rank)
                  .with("step", finished.step)
                  .with("peak_bytes", finished.peak_bytes)
                  .with("page_faults_after_warmup", finished.faults_after_warmup));
  if (rank == base::Rank(0)) {
    write_line(digests_.get(), std::to_string(finished.step.value()) + "," +
                                   digest_text(finished.state_digest) + "\n");
  }
}

double RunRecorder::seconds_per_step() const { return smoothed_step_s_; }

base::Status RunRecorder::finish(const base::Status& outcome) {
  // The first step warms up (pages, kernels, exponents): a rate over more than it leaves it out.
  const uint64_t steps_here = numbers_.steps - resumed_;
  const bool several = steps_here > 1;
  const double seconds = base::to_seconds(last_step_ - (several ? after_first_step_ : started_));
  const double steps = static_cast<double>(steps_here) - (several ? 1.0 : 0.0);
  if (seconds > 0.0)
    numbers_.tokens_per_s = steps * static_cast<double>(options_.tokens_per_step) / seconds;
  write_event(
      base::Event("job.end").with("outcome", outcome.to_string()).with("steps", numbers_.steps));
  if (options_.folder.empty()) return base::Status::ok();

  nlohmann::ordered_json summary;
  summary["outcome"] = outcome.to_string();
  summary["steps"] = numbers_.steps;
  summary["loss"] = numbers_.loss;
  if (numbers_.val_loss >= 0.0) summary["val_loss"] = numbers_.val_loss;
  summary["tokens_per_s"] = numbers_.tokens_per_s;
  summary["params_digest"] = digest_text(numbers_.params_digest);
  summary["state_digest"] = digest_text(numbers_.state_digest);
  summary["workers"] = options_.ranks;
  summary["attempts_again"] = numbers_.step_attempts_again;
  summary["steps_skipped"] = numbers_.steps_skipped;
  summary["memory"] = {{"planned_bytes_max", numbers_.planned_bytes_max},
                       {"peak_bytes_max", numbers_.peak_bytes_max},
                       {"peak_to_plan_max", numbers_.peak_to_plan_max}};
  summary["snapshots"] = {{"taken", numbers_.snapshots_taken},
                          {"skipped", numbers_.snapshots_skipped},
                          {"bytes_max", numbers_.snapshot_bytes_max},
                          {"share_of_time_max", numbers_.snapshot_share_max}};
  summary["epochs"] = numbers_.epochs;
  summary["steps_repeated"] = numbers_.steps_repeated;
  summary["page_faults_after_warmup"] = numbers_.faults_after_warmup;
  // An outcome may quote bytes that are not UTF-8: they are replaced instead of thrown at us.
  const std::string text =
      summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  keep(base::replace_file(files_, options_.folder + "/summary.json", base::as_byte_span(text)));
  return first_error_;
}

}  // namespace perdure::runtime::coordinator
