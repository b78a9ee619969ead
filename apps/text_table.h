#pragma once
// Plain tables and numbers for a person to read.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::apps {

enum class Align : uint8_t { kLeft, kRight };

// Columns as wide as their widest cell, two spaces between them, none at the end of a line. Rows
// may have fewer cells than others; columns beyond `aligns` go left.
std::string text_table(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<Align>& aligns, std::string_view lead = "");

std::string human_size(uint64_t bytes);  // "812 B", "1.5 KiB", "2.0 GiB"

std::string counted(uint64_t count, std::string_view one);  // "1 file", "2 files"

// Without what could drive a terminal: names come from files of others.
std::string printable(std::string_view utf8);

}  // namespace perdure::apps
