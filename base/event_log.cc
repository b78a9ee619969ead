#include "base/event_log.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace perdure::base {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Event::Value& value) {
  if (const double* number = std::get_if<double>(&value); number && !std::isfinite(*number)) {
    return std::isnan(*number) ? "nan" : (*number > 0 ? "inf" : "-inf");
  }
  return std::visit([](const auto& v) { return Json(v); }, value);
}

std::string to_line(const Event& event, uint64_t seq, double t_ms) {
  Json json;
  json["seq"] = seq;
  json["t_ms"] = t_ms;
  json["kind"] = event.kind();
  for (const auto& [key, value] : event.fields()) {
    CHECK(!json.contains(key)) << "event " << event.kind() << " has the field twice: " << key;
    json[key] = to_json(value);
  }
  // Bytes that are not UTF-8 are replaced instead of thrown at us.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<std::unique_ptr<EventLog>> EventLog::open(FileSystem& files, std::string_view path,
                                                 const Clock& clock) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, files.open(path, OpenMode::kAppend));
  return std::unique_ptr<EventLog>(new EventLog(std::move(file), clock));
}

Status EventLog::write(const Event& event) {
  MutexLock lock(mutex_);
  const std::string line = to_line(event, seq_++, to_ms(clock_.now()));
  return file_->append(as_byte_span(line)).annotate("event log");
}

Status EventLog::sync() {
  MutexLock lock(mutex_);
  return file_->sync().annotate("event log");
}

Status EventLog::close() {
  MutexLock lock(mutex_);
  return file_->close().annotate("event log");
}

}  // namespace perdure::base
