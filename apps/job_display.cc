#include "apps/job_display.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace perdure::apps {
namespace {

using runtime::coordinator::StepNews;

std::string text_of(const base::Event::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<uint64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* number = std::get_if<double>(&value)) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.0f", *number);
    return buffer;
  }
  return std::get<bool>(value) ? "yes" : "no";
}

std::string field(const base::Event& event, std::string_view key) {
  for (const auto& [name, value] : event.fields()) {
    if (name == key) return text_of(value);
  }
  return "?";
}

}  // namespace

std::string event_line(const base::Event& event) {
  if (event.kind() == "member.down") {
    return "worker " + field(event, "worker") + " is gone: " + field(event, "how");
  }
  if (event.kind() == "node.lost") {
    return "node " + field(event, "node") + " is gone: " + field(event, "why");
  }
  if (event.kind() == "epoch.active" && field(event, "epoch") != "1") {
    return "epoch " + field(event, "epoch") + " goes on after step " + field(event, "resume_step") +
           ": " + field(event, "why");
  }
  if (event.kind() == "epoch.wait") {
    return "epoch " + field(event, "epoch") + " waits for workers: " + field(event, "why");
  }
  return "";
}

JobDisplay::JobDisplay(runtime::coordinator::RunRecorder& recorder, uint64_t steps,
                       uint64_t tokens_per_step, bool quiet)
    : recorder_(recorder),
      quiet_(quiet),
      terminal_(::isatty(STDOUT_FILENO) != 0),
      tokens_per_step_(tokens_per_step) {
  progress_.steps = steps;
}

void JobDisplay::say(const std::string& line) {
  if (quiet_ || line.empty()) return;
  std::printf(terminal_ ? "\r\033[K%s\n" : "%s\n", line.c_str());
  std::fflush(stdout);
}

void JobDisplay::on_event(const base::Event& event) {
  recorder_.on_event(event);
  say(event_line(event));
}

void JobDisplay::on_prepared(base::Rank rank, const runtime::protocol::Prepared& prepared) {
  recorder_.on_prepared(rank, prepared);
}

StepNews JobDisplay::on_step(const runtime::protocol::StepReport& report) {
  const StepNews news = recorder_.on_step(report);
  if (news != StepNews::kNew) return news;
  progress_.step = report.step.value();
  progress_.loss = report.loss;
  progress_.seconds_per_step = recorder_.seconds_per_step();
  progress_.tokens_per_s =
      static_cast<double>(tokens_per_step_) / std::max(progress_.seconds_per_step, 1e-9);
  show();
  return news;
}

void JobDisplay::on_evaluation(const runtime::protocol::EvaluationReport& report) {
  recorder_.on_evaluation(report);
  progress_.val_loss = report.loss;
  show();
}

void JobDisplay::end_line() const {
  if (terminal_ && !quiet_) std::printf("\n");
}

// A terminal's line is rewritten each step; elsewhere about twenty lines tell the run.
void JobDisplay::show() {
  if (quiet_) return;
  const std::string line = runtime::launcher::format_progress(progress_);
  if (terminal_) {
    std::printf("\r\033[K%s", line.c_str());
  } else if (progress_.step == 1 || progress_.step == progress_.steps ||
             progress_.step % std::max<uint64_t>(1, progress_.steps / 20) == 0) {
    std::printf("%s\n", line.c_str());
  }
  std::fflush(stdout);
}

}  // namespace perdure::apps
