#include "base/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace perdure::base {
namespace {

// Levenshtein distance: how many letters to add, drop or change.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value);
  return std::string(text, end.ptr);
}

std::string value_text(const ConfigValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) return number_text(*d);
  if (std::holds_alternative<std::monostate>(value)) return "[]";
  return '"' + std::get<std::string>(value) + '"';
}

std::string join(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

// The text after '=' as the most specific scalar: "4" is an integer, "4.5" a double, "true" a bool.
ConfigValue guess_scalar(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  const char* end = text.data() + text.size();
  int64_t integer = 0;
  if (auto r = std::from_chars(text.data(), end, integer); r.ec == std::errc() && r.ptr == end) {
    return integer;
  }
  double number = 0;
  if (auto r = std::from_chars(text.data(), end, number); r.ec == std::errc() && r.ptr == end) {
    return number;
  }
  return std::string(text);
}

std::string_view unquote(std::string_view text) {
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
    return text.substr(1, text.size() - 2);
  }
  return text;
}

// "nodes[3]" -> "nodes"; other keys stay as they are.
std::string_view strip_index(std::string_view key) {
  if (!key.ends_with(']')) return key;
  return key.substr(0, key.rfind('['));
}

Status problem_at(std::string_view where, std::string_view key, std::string_view what) {
  return invalid_argument(std::string(where) + ": " + std::string(key) + ": " + std::string(what));
}

}  // namespace

void ConfigSchema::add_double(std::string key, double* variable, ConfigRange<double> range) {
  const double min = range.min;
  const double max = range.max;
  std::string allowed = "a number";
  if (min != std::numeric_limits<double>::lowest() || max != std::numeric_limits<double>::max()) {
    allowed += " in [" + number_text(min) + ", " + number_text(max) + "]";
  }
  const auto as_double = [](const ConfigValue& value) {
    const auto* integer = std::get_if<int64_t>(&value);
    return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
  };
  add({.key = std::move(key),
       .type = Type::kDouble,
       .allowed = allowed,
       .default_text = number_text(*variable),
       .help = std::move(range.help),
       .required = range.required,
       .problem = [=](const ConfigValue& value) -> std::string {
         if (!std::holds_alternative<int64_t>(value) && !std::holds_alternative<double>(value)) {
           return "is not a number";
         }
         const double number = as_double(value);
         return number >= min && number <= max ? "" : "is out of range";
       },
       .apply = [=](const ConfigValue& value) { *variable = as_double(value); }});
}

void ConfigSchema::add_string(std::string key, std::string* variable, ConfigHelp help) {
  add({.key = std::move(key),
       .type = Type::kString,
       .allowed = "a string",
       .default_text = '"' + *variable + '"',
       .help = std::move(help.help),
       .required = help.required,
       .problem = [](const ConfigValue& value) -> std::string {
         return std::holds_alternative<std::string>(value) ? "" : "is not a string";
       },
       .apply =
           [variable](const ConfigValue& value) { *variable = std::get<std::string>(value); }});
}

void ConfigSchema::add_bool(std::string key, bool* variable, ConfigHelp help) {
  add({.key = std::move(key),
       .type = Type::kBool,
       .allowed = "true or false",
       .default_text = *variable ? "true" : "false",
       .help = std::move(help.help),
       .required = help.required,
       .problem = [](const ConfigValue& value) -> std::string {
         return std::holds_alternative<bool>(value) ? "" : "is not a bool";
       },
       .apply = [variable](const ConfigValue& value) { *variable = std::get<bool>(value); }});
}

void ConfigSchema::add_string_list(std::string key, std::vector<std::string>* variable,
                                   ConfigHelp help) {
  add({.key = std::move(key),
       .type = Type::kStringList,
       .allowed = "a list of strings",
       .default_text = "[" + join(*variable) + "]",
       .help = std::move(help.help),
       .required = help.required,
       .problem = [](const ConfigValue& value) -> std::string {
         const bool is_allowed = std::holds_alternative<std::string>(value) ||
                                 std::holds_alternative<std::monostate>(value);
         return is_allowed ? "" : "is not a string";
       },
       .apply =
           [variable](const ConfigValue& value) {
             const auto* element = std::get_if<std::string>(&value);
             if (element != nullptr) variable->push_back(*element);
           },
       .list = variable});
}

void ConfigSchema::add_checked_int(std::string key, ConfigRange<int64_t> range,
                                   int64_t default_value, std::function<void(int64_t)> apply) {
  CHECK_LE(range.min, range.max) << key;
  const int64_t min = range.min;
  const int64_t max = range.max;
  add({.key = std::move(key),
       .type = Type::kInt,
       .allowed = "an integer in [" + std::to_string(min) + ", " + std::to_string(max) + "]",
       .default_text = std::to_string(default_value),
       .help = std::move(range.help),
       .required = range.required,
       .problem = [=](const ConfigValue& value) -> std::string {
         const auto* integer = std::get_if<int64_t>(&value);
         if (integer == nullptr) return "is not an integer";
         return *integer >= min && *integer <= max ? "" : "is out of range";
       },
       .apply = [=](const ConfigValue& value) { apply(std::get<int64_t>(value)); }});
}

void ConfigSchema::add_checked_enum(std::string key, std::vector<std::string> names,
                                    size_t default_index, ConfigHelp help,
                                    std::function<void(size_t)> apply) {
  CHECK_LT(default_index, names.size()) << key << ": the default has no name";
  const auto index_of = [names](const ConfigValue& value) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr) return names.size();
    return static_cast<size_t>(std::find(names.begin(), names.end(), *text) - names.begin());
  };
  add({.key = std::move(key),
       .type = Type::kEnum,
       .allowed = "one of: " + join(names),
       .default_text = '"' + names[default_index] + '"',
       .help = std::move(help.help),
       .required = help.required,
       .problem = [=, count = names.size()](const ConfigValue& value) -> std::string {
         return index_of(value) < count ? "" : "is not a known name";
       },
       .apply = [=](const ConfigValue& value) { apply(index_of(value)); }});
}

void ConfigSchema::add(Field field) {
  const auto at =
      std::lower_bound(fields_.begin(), fields_.end(), field.key,
                       [](const Field& a, const std::string& key) { return a.key < key; });
  CHECK(at == fields_.end() || at->key != field.key) << "declared twice: " << field.key;
  fields_.insert(at, std::move(field));
}

ConfigSchema::Field* ConfigSchema::find(std::string_view key) {
  const auto at = std::lower_bound(fields_.begin(), fields_.end(), key,
                                   [](const Field& a, std::string_view k) { return a.key < k; });
  return at != fields_.end() && at->key == key ? &*at : nullptr;
}

Status ConfigSchema::unknown_key(std::string_view where, std::string_view key) const {
  const Field* nearest = nullptr;
  size_t distance_min = std::max<size_t>(3, key.size() / 3) + 1;
  for (const Field& field : fields_) {
    const size_t distance = edit_distance(key, field.key);
    if (distance < distance_min) {
      distance_min = distance;
      nearest = &field;
    }
  }
  return problem_at(where, key,
                    nearest != nullptr ? "unknown key; did you mean '" + nearest->key + "'?"
                                       : "unknown key; the known keys are listed by describe");
}

Result<ConfigSchema::Assignment> ConfigSchema::check(std::string_view where, std::string_view key,
                                                     ConfigValue value) {
  Field* field = find(key);
  const bool is_element = field == nullptr && key.ends_with(']');
  if (is_element) field = find(strip_index(key));
  if (field == nullptr) return unknown_key(where, key);
  if (is_element != (field->type == Type::kStringList)) {
    return problem_at(where, key,
                      (is_element ? "is an array; allowed is " : "is not an array; allowed is ") +
                          field->allowed);
  }
  if (const std::string problem = field->problem(value); !problem.empty()) {
    return problem_at(where, key,
                      value_text(value) + " " + problem + "; allowed is " + field->allowed);
  }
  return Assignment{field, std::move(value)};
}

void ConfigSchema::commit(const std::vector<Assignment>& assignments) {
  for (const Assignment& assignment : assignments) {
    assignment.field->given = true;
    if (assignment.field->list != nullptr) assignment.field->list->clear();
  }
  for (const Assignment& assignment : assignments) assignment.field->apply(assignment.value);
}

Status ConfigSchema::load_toml(std::string_view text, std::string_view source_name) {
  ASSIGN_OR_RETURN(const std::vector<ConfigEntry> entries, parse_toml(text, source_name));
  std::vector<Assignment> assignments;
  for (const ConfigEntry& entry : entries) {
    const std::string where = std::string(source_name) + ":" + std::to_string(entry.line);
    ASSIGN_OR_RETURN(Assignment assignment, check(where, entry.key, entry.value));
    assignments.push_back(std::move(assignment));
  }
  commit(assignments);
  return Status::ok();
}

// "a, b" for a list; nothing at all is the empty list.
Result<std::vector<ConfigSchema::Assignment>> ConfigSchema::check_list(std::string_view key,
                                                                       std::string_view text) {
  std::vector<Assignment> assignments;
  const std::string element_key = std::string(key) + "[]";
  for (size_t first = 0; first <= text.size();) {
    const size_t comma = std::min(text.find(',', first), text.size());
    ConfigValue value = std::string(unquote(trim(text.substr(first, comma - first))));
    if (text.empty()) value = std::monostate();
    ASSIGN_OR_RETURN(Assignment one, check("--set", element_key, std::move(value)));
    assignments.push_back(std::move(one));
    first = comma + 1;
  }
  return assignments;
}

Status ConfigSchema::set(std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return problem_at("--set", assignment, "has no '='; write key=value");
  }
  const std::string_view key = trim(assignment.substr(0, equals));
  const std::string_view text = trim(assignment.substr(equals + 1));
  const Field* field = find(key);
  if (field == nullptr) return unknown_key("--set", key);

  std::vector<Assignment> assignments;
  if (field->type == Type::kStringList) {
    ASSIGN_OR_RETURN(assignments, check_list(key, text));
  } else {
    const bool textual = field->type == Type::kString || field->type == Type::kEnum;
    ConfigValue value = textual ? ConfigValue(std::string(unquote(text))) : guess_scalar(text);
    ASSIGN_OR_RETURN(Assignment one, check("--set", key, std::move(value)));
    assignments.push_back(std::move(one));
  }
  commit(assignments);
  return Status::ok();
}

Status ConfigSchema::check_required() const {
  std::string missing;
  for (const Field& field : fields_) {
    if (!field.required || field.given) continue;
    missing += (missing.empty() ? "" : ", ") + field.key + " (" + field.allowed + ")";
  }
  if (missing.empty()) return Status::ok();
  return invalid_argument("missing required: " + missing);
}

std::string ConfigSchema::describe() const {
  std::string text;
  for (const Field& field : fields_) {
    text += field.key + ": " + field.allowed + "; " +
            (field.required ? "required" : "default " + field.default_text) +
            (field.help.empty() ? "" : ". " + field.help) + "\n";
  }
  return text;
}

}  // namespace perdure::base
