#include "runtime/launcher/status_table.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

namespace perdure::runtime::launcher {
namespace {

using json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

std::string cell(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.6g", value.get<double>());
    return buffer;
  }
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

bool is_list_of_objects(const json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_object(); });
}

std::string heading(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string aligned(const std::vector<Row>& rows, const std::string& lead) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = lead;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

// The plain columns of a list, in the order in which they first appear.
std::vector<std::string> columns_of(const json& list) {
  std::vector<std::string> names;
  for (const json& object : list) {
    for (const auto& [key, value] : object.items()) {
      if (value.is_structured()) continue;
      if (std::find(names.begin(), names.end(), key) == names.end()) names.push_back(key);
    }
  }
  return names;
}

std::string table(const json& list, const std::string& lead) {
  const std::vector<std::string> names = columns_of(list);
  std::vector<Row> rows(1);
  for (const std::string& name : names) rows[0].push_back(heading(name));
  for (const json& object : list) {
    Row row;
    for (const std::string& name : names) {
      row.push_back(object.contains(name) ? cell(object[name]) : "-");
    }
    rows.push_back(std::move(row));
  }
  return aligned(rows, lead);
}

// Objects of `key` inside each object of the list, each led by the list's first column.
json flattened(const json& list, const std::string& key) {
  json all = json::array();
  const std::vector<std::string> names = columns_of(list);
  for (const json& object : list) {
    if (!object.contains(key) || !is_list_of_objects(object[key])) continue;
    for (const json& inner : object[key]) {
      json row = json::object();
      if (!names.empty() && object.contains(names[0])) row[names[0]] = object[names[0]];
      row.update(inner);
      all.push_back(std::move(row));
    }
  }
  return all;
}

}  // namespace

base::Result<std::string> status_table(const std::string& text) {
  const json page = json::parse(text, nullptr, false);
  if (!page.is_object()) return base::data_loss("the coordinator's status is no JSON object");
  std::vector<Row> plain;
  std::string tables;
  for (const auto& [key, value] : page.items()) {
    if (!is_list_of_objects(value)) {
      plain.push_back({heading(key), cell(value)});
      continue;
    }
    tables += "\n" + heading(key) + "\n" + table(value, "  ");
    for (const auto& [inner, list] : value.front().items()) {
      if (!list.is_array()) continue;
      const json all = flattened(value, inner);
      if (!all.empty()) tables += "\n" + heading(inner) + "\n" + table(all, "  ");
    }
  }
  return aligned(plain, "") + tables;
}

}  // namespace perdure::runtime::launcher
