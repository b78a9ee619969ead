#pragma once
// Structured log lines on stderr, one logger per module, each with its own level.
//
//   LOG_INFO("engine", "step committed", KV("step", step), KV("loss", 2.1));
//   -> 2024-06-01 10:00:00.123456 I engine: step committed step=3 loss=2.1
//
// Any thread may log. A disabled line costs one relaxed load: its arguments are not evaluated. The
// module is a string literal. Logs are for people; what a program or a test must read goes to
// base/event_log.h.

#include <atomic>
#include <concepts>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>

#include "base/status.h"

namespace perdure::base {

enum class LogLevel { kDebug = 0, kInfo, kWarning, kError, kOff };

// One key=value of a line. Text with blanks, '=' or quotes is quoted and escaped.
class LogField {
 public:
  LogField(std::string_view key, std::string_view value);
  LogField(std::string_view key, const char* value) : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, const std::string& value)
      : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, bool value) : LogField(key, value ? "true" : "false") {}
  LogField(std::string_view key, double value);
  LogField(std::string_view key, const Status& value) : LogField(key, value.to_string()) {}
  template <std::integral T>
  LogField(std::string_view key, T value) : text_(std::string(key) + "=" + std::to_string(value)) {}
  // Anything that prints, such as the strong ids.
  template <typename T>
  requires requires(std::ostream& out, const T& value) {
    out << value;
  } &&(!std::convertible_to<T, std::string_view>)&&(!std::is_arithmetic_v<T>)
      LogField(std::string_view key, const T& value)
      : LogField(key, std::string_view((std::ostringstream() << value).str())) {
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// A module's name and level. Made at its first log line or first setting, and kept until the
// process ends.
class LogModule {
 public:
  LogModule(std::string name, LogLevel level) : name_(std::move(name)), level_(level) {}
  bool is_enabled(LogLevel level) const { return level >= level_.load(std::memory_order_relaxed); }
  void set_level(LogLevel level) { level_.store(level, std::memory_order_relaxed); }
  void write(LogLevel level, std::string_view text, std::initializer_list<LogField> fields) const;

 private:
  const std::string name_;
  std::atomic<LogLevel> level_;
};

LogModule& log_module(std::string_view name);

// Of one module, and of all modules (also those that have not logged yet).
void set_log_level(std::string_view module, LogLevel level);
void set_all_log_levels(LogLevel level);

// "info", or "warning,engine=debug,rpc=off". kInvalidArgument names what is wrong; then nothing is
// changed.
Status set_log_levels(std::string_view spec);

}  // namespace perdure::base

#define KV(key, value) ::perdure::base::LogField(key, value)

#define PERDURE_LOG_(level, module, text, ...)                                                  \
  do {                                                                                          \
    static ::perdure::base::LogModule& perdure_log_module_ =                                    \
        ::perdure::base::log_module("" module);                                                 \
    if (perdure_log_module_.is_enabled(level)) {                                                \
      perdure_log_module_.write(level, text,                                                    \
                                std::initializer_list<::perdure::base::LogField>{__VA_ARGS__}); \
    }                                                                                           \
  } while (false)

#define LOG_DEBUG(module, text, ...) \
  PERDURE_LOG_(::perdure::base::LogLevel::kDebug, module, text __VA_OPT__(, ) __VA_ARGS__)
#define LOG_INFO(module, text, ...) \
  PERDURE_LOG_(::perdure::base::LogLevel::kInfo, module, text __VA_OPT__(, ) __VA_ARGS__)
#define LOG_WARNING(module, text, ...) \
  PERDURE_LOG_(::perdure::base::LogLevel::kWarning, module, text __VA_OPT__(, ) __VA_ARGS__)
#define LOG_ERROR(module, text, ...) \
  PERDURE_LOG_(::perdure::base::LogLevel::kError, module, text __VA_OPT__(, ) __VA_ARGS__)
