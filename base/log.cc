#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"

namespace perdure::base {
namespace {

// Process-wide by nature, as stderr is. Never destroyed: threads may log while the process exits.
struct LogState {
  LogState() : logger("perdure", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    logger.set_level(spdlog::level::debug);
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%f %v");
    logger.flush_on(spdlog::level::debug);
  }

  Mutex mutex;
  LogLevel default_level GUARDED_BY(mutex) = LogLevel::kInfo;
  std::map<std::string, std::unique_ptr<LogModule>, std::less<>> modules GUARDED_BY(mutex);
  spdlog::logger logger;
};

LogState& state() {
  static LogState* const instance = new LogState;
  return *instance;
}

constexpr std::string_view kLetters = "DIWE";

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

std::optional<LogLevel> parse_level(std::string_view name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  if (name == "warning") return LogLevel::kWarning;
  if (name == "error") return LogLevel::kError;
  if (name == "off") return LogLevel::kOff;
  return std::nullopt;
}

std::string quote_if_needed(std::string_view value) {
  const bool plain = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
    return c > ' ' && c != '"' && c != '=' && c != '\\' && c != '\x7f';
  });
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (c == '\n') {
      quoted += "\\n";
    } else {
      quoted += static_cast<unsigned char>(c) < ' ' ? '?' : c;
    }
  }
  return quoted + '"';
}

std::string double_text(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

}  // namespace

LogField::LogField(std::string_view key, std::string_view value)
    : text_(std::string(key) + "=" + quote_if_needed(value)) {}

LogField::LogField(std::string_view key, double value)
    : text_(std::string(key) + "=" + double_text(value)) {}

void LogModule::write(LogLevel level, std::string_view text,
                      std::initializer_list<LogField> fields) const {
  std::string line{kLetters[static_cast<size_t>(level)], ' '};
  line.append(name_).append(": ").append(text);
  for (const LogField& field : fields) line.append(" ").append(field.text());
  state().logger.log(spdlog_level(level), std::string_view(line));
}

LogModule& log_module(std::string_view name) {
  LogState& s = state();
  MutexLock lock(s.mutex);
  const auto found = s.modules.find(name);
  if (found != s.modules.end()) return *found->second;
  auto module = std::make_unique<LogModule>(std::string(name), s.default_level);
  return *s.modules.emplace(std::string(name), std::move(module)).first->second;
}

void set_log_level(std::string_view module, LogLevel level) { log_module(module).set_level(level); }

void set_all_log_levels(LogLevel level) {
  LogState& s = state();
  MutexLock lock(s.mutex);
  s.default_level = level;
  for (const auto& [name, module] : s.modules) module->set_level(level);
}

Status set_log_levels(std::string_view spec) {
  std::optional<LogLevel> all;
  std::vector<std::pair<std::string_view, LogLevel>> modules;
  for (size_t first = 0; first <= spec.size();) {
    const size_t comma = std::min(spec.find(',', first), spec.size());
    const std::string_view item = spec.substr(first, comma - first);
    const size_t equals = item.find('=');
    const std::string_view name = equals == std::string_view::npos ? "" : item.substr(0, equals);
    const auto level =
        parse_level(equals == std::string_view::npos ? item : item.substr(equals + 1));
    if (!level.has_value() || (equals != std::string_view::npos && name.empty())) {
      return invalid_argument("log levels '" + std::string(spec) + "': '" + std::string(item) +
                              "' is neither a level (debug, info, warning, error, off) nor "
                              "module=level");
    }
    if (equals == std::string_view::npos) {
      all = level;
    } else {
      modules.emplace_back(name, *level);
    }
    first = comma + 1;
  }
  if (all.has_value()) set_all_log_levels(*all);
  for (const auto& [name, level] : modules) set_log_level(name, level);
  return Status::ok();
}

}  // namespace perdure::base
