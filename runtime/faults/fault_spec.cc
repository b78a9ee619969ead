#include "runtime/faults/fault_spec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace perdure::runtime::faults {
namespace {

using base::Result;
using base::Status;

constexpr std::array<std::string_view, 10> kStepPhases = {
    "begin", "compute", "reduce",   "vote",     "voted",
    "apply", "commit",  "evaluate", "snapshot", "kept"};
constexpr std::array<std::string_view, 7> kEpochPhases = {
    "fence", "collect", "decide", "prepare", "transfer", "gate", "go"};
constexpr double kSecondsMax = 86400.0;

template <typename List>
std::string listed(const List& words) {
  std::string text;
  for (const std::string_view word : words) {
    if (!text.empty()) text += ", ";
    text += word;
  }
  return text;
}

template <typename List>
bool has(const List& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Status bad(std::string_view part, std::string_view text, std::string_view allowed) {
  return base::invalid_argument(std::string(part) + " '" + std::string(text) + "': allowed are " +
                                std::string(allowed));
}

template <typename Int>
std::optional<Int> to_number(std::string_view text) {
  Int value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Words between separators; empty ones are kept when `separator` is no blank.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  while (true) {
    const size_t end = std::min(text.find(separator), text.size());
    if (separator != ' ' || end > 0) words.push_back(text.substr(0, end));
    if (end == text.size()) return words;
    text.remove_prefix(end + 1);
  }
}

std::pair<std::string_view, std::string_view> cut(std::string_view text, char separator) {
  const size_t at = text.find(separator);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::optional<base::Nanos> to_seconds(std::string_view text, double scale) {
  const std::optional<double> number = to_number<double>(text);
  if (!number.has_value() || !(*number >= 0.0) || *number * scale > kSecondsMax) {
    return std::nullopt;
  }
  return base::from_seconds(*number * scale);
}

Status parse_phase(std::string_view word, FaultSpec& spec) {
  const auto [key, phase] = cut(word, '=');
  if (key != "phase") return bad("at", word, "step:N, epoch:N, time:T, then phase=P");
  if (spec.moment == FaultMoment::kTime) return bad("at", word, "no phase with a time");
  const bool is_step = spec.moment == FaultMoment::kStep;
  if (is_step && !has(kStepPhases, phase)) return bad("phase", phase, listed(kStepPhases));
  if (!is_step && !has(kEpochPhases, phase)) return bad("phase", phase, listed(kEpochPhases));
  spec.phase = phase;
  return Status::ok();
}

Status parse_at(std::string_view text, FaultSpec& spec) {
  const std::vector<std::string_view> words = split(text, ',');
  const auto [kind, value] = cut(words[0], ':');
  if (kind == "time") {
    const bool in_ms = value.ends_with("ms");
    if (!value.ends_with("s")) return bad("at", words[0], "time:1.5s, time:200ms");
    const auto time =
        to_seconds(value.substr(0, value.size() - (in_ms ? 2 : 1)), in_ms ? 1e-3 : 1.0);
    if (!time.has_value()) return bad("at", words[0], "time:1.5s, time:200ms");
    spec.moment = FaultMoment::kTime;
    spec.time = *time;
  } else if (kind == "step" || kind == "epoch") {
    const auto number = to_number<uint64_t>(value);
    if (!number.has_value() || *number == 0) {
      return bad("at", words[0], std::string(kind) + ":N with N from 1");
    }
    spec.moment = kind == "step" ? FaultMoment::kStep : FaultMoment::kEpoch;
    spec.phase = kind == "step" ? kStepPhases[0] : kEpochPhases[0];
    spec.number = *number;
  } else {
    return bad("at", text, "step:N, epoch:N, time:T");
  }
  if (words.size() > 2) return bad("at", text, "one phase");
  return words.size() == 2 ? parse_phase(words[1], spec) : Status::ok();
}

Status parse_target(std::string_view text, FaultTarget& target) {
  constexpr std::string_view kAllowed = "worker:N, node:N, coordinator, job, source";
  const auto [kind, value] = cut(text, ':');
  if (kind == "worker" || kind == "node") {
    const auto number = to_number<uint32_t>(value);
    if (!number.has_value()) return bad("target", text, kAllowed);
    target = {kind == "worker" ? TargetKind::kWorker : TargetKind::kNode, *number};
  } else if (text == "coordinator") {
    target.kind = TargetKind::kCoordinator;
  } else if (text == "job") {
    target.kind = TargetKind::kJob;
  } else if (text == "source") {
    target.kind = TargetKind::kSource;
  } else {
    return bad("target", text, kAllowed);
  }
  return Status::ok();
}

Status parse_deed(std::string_view text, FaultSpec& spec) {
  constexpr std::string_view kAllowed = "kill, stop, stop:SECONDS, exit, slow:FACTOR, drop, start";
  const auto [word, value] = cut(text, ':');
  if (text == "kill") {
    spec.deed = FaultDeed::kKill;
  } else if (text == "exit") {
    spec.deed = FaultDeed::kExit;
  } else if (text == "drop") {
    spec.deed = FaultDeed::kDrop;
  } else if (text == "start") {
    spec.deed = FaultDeed::kStart;
  } else if (word == "stop") {
    spec.deed = FaultDeed::kStop;
    if (text == "stop") return Status::ok();
    const auto time = to_seconds(value, 1.0);
    if (!time.has_value() || *time == base::Nanos(0)) return bad("do", text, kAllowed);
    spec.stop_time = *time;
  } else if (word == "slow") {
    const auto factor = to_number<double>(value);
    if (!factor.has_value() || !(*factor > 1.0 && *factor <= 1000.0)) {
      return bad("do", text, "slow:FACTOR with a factor above 1, at most 1000");
    }
    spec.deed = FaultDeed::kSlow;
    spec.factor = *factor;
  } else {
    return bad("do", text, kAllowed);
  }
  return Status::ok();
}

// What no part can know alone.
Status check_parts(const FaultSpec& spec) {
  const TargetKind target = spec.target.kind;
  if (target == TargetKind::kSource &&
      (spec.moment != FaultMoment::kEpoch || spec.phase != "transfer")) {
    return bad("target", "source", "only at=epoch:N,phase=transfer");
  }
  if (spec.deed == FaultDeed::kSlow &&
      (spec.moment != FaultMoment::kStep || target != TargetKind::kWorker)) {
    return bad("do", "slow", "only at=step:N with target=worker:N");
  }
  if (spec.deed == FaultDeed::kStart && target != TargetKind::kWorker &&
      target != TargetKind::kNode) {
    return bad("do", "start", "only target=worker:N and target=node:N");
  }
  return Status::ok();
}

}  // namespace

std::string FaultTarget::to_string() const {
  switch (kind) {
    case TargetKind::kWorker:
      return "worker " + std::to_string(number);
    case TargetKind::kNode:
      return "node " + std::to_string(number);
    case TargetKind::kCoordinator:
      return "coordinator";
    case TargetKind::kJob:
      return "job";
    case TargetKind::kSource:
      return "source";
  }
  return "unknown";
}

std::string FaultSpec::point() const {
  switch (moment) {
    case FaultMoment::kStep:
      return "step." + phase;
    case FaultMoment::kEpoch:
      return target.kind == TargetKind::kSource ? "epoch.serve" : "coordinator." + phase;
    case FaultMoment::kTime:
      break;
  }
  return "";
}

bool FaultSpec::is_reached(std::string_view at, uint64_t step, uint64_t epoch) const {
  if (moment == FaultMoment::kTime || at != point()) return false;
  return number == (moment == FaultMoment::kStep ? step : epoch);
}

Result<FaultSpec> parse_fault(std::string_view text) {
  FaultSpec spec;
  spec.text = text;
  std::vector<std::string_view> seen;
  for (const std::string_view word : split(text, ' ')) {
    const auto [key, value] = cut(word, '=');
    if (has(seen, key)) return bad("fault", text, "each part once: at= target= do=");
    seen.push_back(key);
    if (key == "at") {
      RETURN_IF_ERROR(parse_at(value, spec));
    } else if (key == "target") {
      RETURN_IF_ERROR(parse_target(value, spec.target));
    } else if (key == "do") {
      RETURN_IF_ERROR(parse_deed(value, spec));
    } else {
      return bad("fault", word, "at=..., target=..., do=...");
    }
  }
  if (seen.size() != 3) return bad("fault", text, "at=... target=... do=..., all three");
  RETURN_IF_ERROR(check_parts(spec));
  return spec;
}

Result<std::vector<FaultSpec>> parse_faults(const std::vector<std::string>& texts) {
  std::vector<FaultSpec> specs;
  for (const std::string& text : texts) {
    ASSIGN_OR_RETURN(FaultSpec spec, parse_fault(text));
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace perdure::runtime::faults
