#include "apps/text_table.h"

#include <algorithm>
#include <cstdio>

namespace perdure::apps {
namespace {

// In characters, not bytes.
size_t width_of(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(
      utf8.begin(), utf8.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<Align>& aligns, std::string_view lead) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line(lead);
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      const bool goes_right = i < aligns.size() && aligns[i] == Align::kRight;
      line += (i == 0 ? "" : "  ") + (goes_right ? space + row[i] : row[i] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string human_size(uint64_t bytes) {
  constexpr std::string_view kUnits = "KMGTPE";
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // What would be printed as 1024.0 is one of the next unit.
  for (; value >= 1023.95 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %ciB", value, kUnits[unit]);
  return text;
}

std::string counted(uint64_t count, std::string_view one) {
  return std::to_string(count) + " " + std::string(one) + (count == 1 ? "" : "s");
}

std::string printable(std::string_view utf8) {
  std::string text;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto byte = static_cast<uint8_t>(utf8[i]);
    const auto next = i + 1 < utf8.size() ? static_cast<uint8_t>(utf8[i + 1]) : 0;
    if (byte < 0x20 || byte == 0x7F) {
      text += '?';
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // control characters of 8 bits
      text += '?';
      ++i;
    } else {
      text += utf8[i];
    }
  }
  return text;
}

}  // namespace perdure::apps
