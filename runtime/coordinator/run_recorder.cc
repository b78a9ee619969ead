#include "runtime/coordinator/run_recorder.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace perdure::runtime::coordinator {
namespace {

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
    : options_(options), files_(files), clock_(clock), planned_bytes_(options.ranks) {}

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
  for (const char* stale : {"events.jsonl", "summary.json"}) {
    const base::Status removed = files_.remove(lead + stale);
    if (!removed.is_ok() && removed.code() != base::StatusCode::kNotFound) return removed;
  }
  ASSIGN_OR_RETURN(events_, base::EventLog::open(files_, lead + "events.jsonl", clock_));
  ASSIGN_OR_RETURN(metrics_, files_.open(lead + "metrics.csv", base::OpenMode::kTruncate));
  ASSIGN_OR_RETURN(digests_, files_.open(lead + "digests.csv", base::OpenMode::kTruncate));
  write_line(metrics_.get(),
             "step,loss,grad_norm,learning_rate,tokens_per_s,step_ms,attempts,applied\n");
  write_line(digests_.get(), "step,digest\n");
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

void RunRecorder::on_ready(base::Rank rank, const rpc::Ready& ready) {
  planned_bytes_[rank.value()] = ready.planned_bytes;
  numbers_.planned_bytes_max = std::max(numbers_.planned_bytes_max, ready.planned_bytes);
  write_event(base::Event("worker.ready")
                  .with("rank", rank)
                  .with("device", ready.device)
                  .with("planned_bytes", ready.planned_bytes));
}

void RunRecorder::on_start() {
  started_ = last_step_ = clock_.now();
  write_event(base::Event("job.start").with("ranks", options_.ranks).with("steps", options_.steps));
}

void RunRecorder::on_step(const rpc::StepReport& report) {
  const base::Nanos now = clock_.now();
  const double seconds = std::max(base::to_seconds(now - last_step_), 1e-9);
  last_step_ = now;
  if (report.step.value() == 1) after_first_step_ = now;
  smoothed_step_s_ = smoothed_step_s_ == 0.0 ? seconds : 0.9 * smoothed_step_s_ + 0.1 * seconds;
  ++numbers_.steps;
  numbers_.loss = report.loss;
  numbers_.step_attempts_again += report.attempts - 1;
  numbers_.steps_skipped += report.applied == 0 ? 1 : 0;
  const double rate = static_cast<double>(options_.tokens_per_step) / seconds;
  const std::string step = std::to_string(report.step.value());
  write_line(metrics_.get(),
             step + "," + number_text(report.loss) + "," + number_text(report.grad_norm) + "," +
                 number_text(report.learning_rate) + "," + number_text(rate) + "," +
                 number_text(report.step_ms) + "," + std::to_string(report.attempts) + "," +
                 std::to_string(report.applied) + "\n");
  write_line(digests_.get(), std::to_string(report.step.value() - 1) + "," +
                                 digest_text(report.digest_before) + "\n");
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

void RunRecorder::on_evaluation(const rpc::EvaluationReport& report) {
  numbers_.val_loss = report.loss;
  write_event(base::Event("evaluation").with("step", report.step).with("val_loss", report.loss));
}

void RunRecorder::on_finished(base::Rank rank, const rpc::Finished& finished) {
  numbers_.params_digest = finished.params_digest;
  numbers_.state_digest = finished.state_digest;
  numbers_.peak_bytes_max = std::max(numbers_.peak_bytes_max, finished.peak_bytes);
  numbers_.faults_after_warmup += finished.faults_after_warmup;
  const double planned = static_cast<double>(planned_bytes_[rank.value()]);
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
  const bool several = numbers_.steps > 1;
  const double seconds = base::to_seconds(last_step_ - (several ? after_first_step_ : started_));
  const double steps = static_cast<double>(numbers_.steps) - (several ? 1.0 : 0.0);
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
  summary["page_faults_after_warmup"] = numbers_.faults_after_warmup;
  // An outcome may quote bytes that are not UTF-8: they are replaced instead of thrown at us.
  const std::string text =
      summary.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  keep(base::replace_file(files_, options_.folder + "/summary.json", base::as_byte_span(text)));
  return first_error_;
}

}  // namespace perdure::runtime::coordinator
