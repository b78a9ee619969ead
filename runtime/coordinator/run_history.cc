// Continuing the files of an earlier life of the coordinator: which step was recorded last, and
// nothing after it.

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "runtime/coordinator/run_recorder.h"

namespace perdure::runtime::coordinator {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 30;

// The whole lines of a file after its first; the rest of a line that was being written is left out.
std::vector<std::string> lines_of(const std::vector<std::byte>& bytes) {
  std::vector<std::string> lines;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t at = text.find('\n');
  while (at != std::string_view::npos) {
    const size_t begin = at + 1;
    at = text.find('\n', begin);
    if (at != std::string_view::npos) lines.emplace_back(text.substr(begin, at - begin));
  }
  return lines;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

uint64_t number_of(const std::string& text, int base = 10) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// Lines are in the order of their steps. 0: there is none.
uint64_t last_step(const std::vector<std::string>& lines) {
  return lines.empty() ? 0 : number_of(lines.back());
}

// The header and the lines of steps up to `last`.
std::string kept_part(const std::vector<std::byte>& bytes, uint64_t last) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string kept(text.substr(0, text.find('\n') + 1));
  for (const std::string& line : lines_of(bytes)) {
    if (number_of(line) <= last) kept += line + "\n";
  }
  return kept;
}

// Nothing when the file is not there.
base::Result<std::vector<std::byte>> read_if_there(base::FileSystem& files,
                                                   const std::string& path) {
  base::Result<std::vector<std::byte>> bytes = base::read_file(files, path, kFileBytesMax);
  if (bytes.status().code() == base::StatusCode::kNotFound) return std::vector<std::byte>();
  return bytes;
}

}  // namespace

// A step is known when it stands in all three files; what one of them has beyond that is told
// again.
base::Status RunRecorder::continue_files() {
  RETURN_IF_ERROR(continue_events());
  const std::string lead = options_.folder + "/";
  ASSIGN_OR_RETURN(const auto metrics, read_if_there(files_, lead + "metrics.csv"));
  ASSIGN_OR_RETURN(const auto digests, read_if_there(files_, lead + "digests.csv"));
  ASSIGN_OR_RETURN(const auto ledger, read_if_there(files_, lead + "ledger.csv"));
  const std::vector<std::string> digest_lines = lines_of(digests);
  // A line of the digests tells the state before a step.
  const uint64_t digested = digest_lines.empty() ? 0 : last_step(digest_lines) + 1;
  const uint64_t known =
      std::min({last_step(lines_of(metrics)), last_step(lines_of(ledger)), digested});
  for (const std::string& line : lines_of(metrics)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != 8) return base::data_loss("metrics.csv: wrong line '" + line + "'");
    if (number_of(fields[0]) > known) break;
    numbers_.loss = std::strtod(fields[1].c_str(), nullptr);
    numbers_.step_attempts_again += number_of(fields[6]) - 1;
    numbers_.steps_skipped += fields[7] == "0" ? 1 : 0;
  }
  numbers_.steps = known;
  resumed_ = known;
  if (known == 0) return base::Status::ok();
  for (const std::string& line : digest_lines) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() == 2 && number_of(fields[0]) < known)
      digests_before_[base::Step(number_of(fields[0]) + 1)] = number_of(fields[1], 16);
  }
  const std::pair<const char*, std::string> kept[] = {
      {"metrics.csv", kept_part(metrics, known)},
      {"digests.csv", kept_part(digests, known - 1)},
      {"ledger.csv", kept_part(ledger, known)}};
  for (const auto& [name, text] : kept)
    RETURN_IF_ERROR(base::replace_file(files_, lead + name, base::as_byte_span(text)));
  return base::Status::ok();
}

// Whole lines stay. Evaluations are told only once: the newest is taken from there.
base::Status RunRecorder::continue_events() {
  const std::string path = options_.folder + "/events.jsonl";
  ASSIGN_OR_RETURN(const auto bytes, read_if_there(files_, path));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  size_t at = 0;
  for (size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', at)) {
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find("\"kind\":\"evaluation\"") == std::string::npos) continue;
    const auto event = nlohmann::json::parse(line, nullptr, false);
    if (!event.is_object() || !event.contains("step") || !event["step"].is_number() ||
        !event.contains("val_loss") || !event["val_loss"].is_number())
      continue;
    evaluated_ = base::Step(event["step"].get<uint64_t>());
    numbers_.val_loss = event["val_loss"].get<double>();
  }
  if (at == text.size()) return base::Status::ok();
  return base::replace_file(files_, path, base::as_byte_span(text.substr(0, at)));
}

}  // namespace perdure::runtime::coordinator
