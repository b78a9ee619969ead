#pragma once
// The machine-readable story of a run: one JSON object per line, in the order in which it happened.
//
//   RETURN_IF_ERROR(log->write(Event("epoch.start").with("epoch", 3).with("reason", "node 2 is
//   gone")));
//   -> {"seq":17,"t_ms":5120.25,"kind":"epoch.start","epoch":3,"reason":"node 2 is gone"}

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/status.h"

namespace perdure::base {

// A kind and typed fields, kept in the order in which they were added. Keys are unique; "seq",
// "t_ms" and "kind" are taken. A double that is not finite is written as "nan", "inf" or "-inf".
class Event {
 public:
  using Value = std::variant<bool, int64_t, uint64_t, double, std::string>;

  explicit Event(std::string_view kind) : kind_(kind) {}

  template <typename T>
  Event& with(std::string_view key, const T& value) & {
    fields_.emplace_back(std::string(key), to_value(value));
    return *this;
  }
  template <typename T>
  Event&& with(std::string_view key, const T& value) && {
    return std::move(with(key, value));
  }

  const std::string& kind() const { return kind_; }
  const std::vector<std::pair<std::string, Value>>& fields() const { return fields_; }

 private:
  template <typename T>
  static Value to_value(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (std::signed_integral<T>) {
      return static_cast<int64_t>(value);
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<uint64_t>(value);
    } else if constexpr (std::floating_point<T>) {
      return static_cast<double>(value);
    } else if constexpr (requires { value.value(); }) {  // strong ids
      return to_value(value.value());
    } else {
      return std::string(value);
    }
  }

  std::string kind_;
  std::vector<std::pair<std::string, Value>> fields_;
};

// Any thread may write; lines do not mix. Each line reaches the operating system before write()
// returns; it is durable only after sync(). After an error the log goes on with the next event;
// `seq` then has a gap.
class EventLog {
 public:
  // Creates or continues the file (`seq` starts at 0 either way). `clock` outlives the log.
  static Result<std::unique_ptr<EventLog>> open(FileSystem& files, std::string_view path,
                                                const Clock& clock);

  // The error of the file.
  Status write(const Event& event) EXCLUDES(mutex_);
  Status sync() EXCLUDES(mutex_);
  Status close() EXCLUDES(mutex_);

 private:
  EventLog(std::unique_ptr<File> file, const Clock& clock)
      : clock_(clock), file_(std::move(file)) {}

  const Clock& clock_;
  Mutex mutex_;
  std::unique_ptr<File> file_ GUARDED_BY(mutex_);
  uint64_t seq_ GUARDED_BY(mutex_) = 0;
};

}  // namespace perdure::base
