// Continuing the files of an earlier life of the coordinator: which step was recorded last, and
// nothing after it.

#include <algorithm>
#include <charconv>

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

// The header and the lines of steps up to `last`.
std::string kept_part(const std::vector<std::byte>& bytes, uint64_t last) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string kept(text.substr(0, std::min(text.find('\n'), text.size() - 1) + 1));
  for (const std::string& line : lines_of(bytes)) {
    if (number_of(line.substr(0, line.find(','))) <= last) kept += line + "\n";
  }
  return kept;
}

}  // namespace

base::Status RunRecorder::continue_files() {
  const std::string lead = options_.folder + "/";
  base::Result<std::vector<std::byte>> metrics =
      base::read_file(files_, lead + "metrics.csv", kFileBytesMax);
  if (metrics.status().code() == base::StatusCode::kNotFound) return base::Status::ok();
  RETURN_IF_ERROR(metrics.status());
  for (const std::string& line : lines_of(*metrics)) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() != 8) return base::data_loss("metrics.csv: wrong line '" + line + "'");
    numbers_.steps = number_of(fields[0]);
    numbers_.loss = std::strtod(fields[1].c_str(), nullptr);
    numbers_.step_attempts_again += number_of(fields[6]) - 1;
    numbers_.steps_skipped += fields[7] == "0" ? 1 : 0;
  }
  if (numbers_.steps == 0) return base::Status::ok();
  for (const char* name : {"metrics.csv", "digests.csv", "ledger.csv"}) {
    const bool is_digests =
        std::string_view(name) == "digests.csv";  // a line tells the step before
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                     base::read_file(files_, lead + name, kFileBytesMax));
    const std::string kept = kept_part(bytes, numbers_.steps - (is_digests ? 1 : 0));
    RETURN_IF_ERROR(base::replace_file(files_, lead + name, base::as_byte_span(kept)));
    if (!is_digests) continue;
    for (const std::string& line : lines_of(bytes)) {
      const std::vector<std::string> fields = fields_of(line);
      if (fields.size() == 2 && number_of(fields[0]) < numbers_.steps)
        digests_before_[base::Step(number_of(fields[0]) + 1)] = number_of(fields[1], 16);
    }
  }
  return base::Status::ok();
}

}  // namespace perdure::runtime::coordinator
