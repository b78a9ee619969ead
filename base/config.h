#pragma once
// Typed options bound to variables, filled from TOML text and from `--set key=value`.
//
//   JobConfig job;                                            // its initial values are the
//   defaults ConfigSchema schema; schema.add_int("layout.pipelines", &job.pipelines, {.min = 1,
//   .max = 1024, .help = "replicas"}); schema.add_enum("numerics", &job.numerics, {{"exact",
//   kExact}, {"fast", kFast}}, {.help = "..."}); RETURN_IF_ERROR(schema.load_toml(text,
//   "job.toml")); RETURN_IF_ERROR(schema.set("layout.pipelines=4"));
//   RETURN_IF_ERROR(schema.check_required());
//
// Every error is kInvalidArgument with one line: source:line, key, what is wrong, what is allowed.

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace perdure::base {

// An empty array, which has no scalars, is one entry of the last kind, with the key "nodes[]".
using ConfigValue = std::variant<bool, int64_t, double, std::string, std::monostate>;

// One scalar of a TOML document. Keys are paths: "layout.pipelines", and for the second element of
// an array "fault[1].kind" or "nodes[1]".
struct ConfigEntry {
  std::string key;
  ConfigValue value;
  int line = 0;
};

// All scalars of `text`, in document order of lines. kInvalidArgument with source:line on a syntax
// error, a duplicate key or a date (which no option has).
Result<std::vector<ConfigEntry>> parse_toml(std::string_view text, std::string_view source_name);

template <typename T>
struct ConfigRange {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
  bool required = false;
  std::string help = {};
};

struct ConfigHelp {
  bool required = false;
  std::string help = {};
};

// Not thread-safe; used at start-up. The bound variables outlive the schema. A failing call changes
// no variable.
class ConfigSchema {
 public:
  template <std::integral T>
  void add_int(std::string key, T* variable, ConfigRange<std::type_identity_t<T>> range = {});
  void add_double(std::string key, double* variable, ConfigRange<double> range = {});
  void add_string(std::string key, std::string* variable, ConfigHelp help = {});
  void add_bool(std::string key, bool* variable, ConfigHelp help = {});
  template <typename Enum>
  void add_enum(std::string key, Enum* variable,
                std::vector<std::pair<std::string, std::type_identity_t<Enum>>> names,
                ConfigHelp help = {});
  // An array of strings; `--set key=a,b,c`.
  void add_string_list(std::string key, std::vector<std::string>* variable, ConfigHelp help = {});

  // `source_name` appears in messages. Loading twice is allowed: the later text wins.
  Status load_toml(std::string_view text, std::string_view source_name);

  // "key=value"; the value is read as the declared type, strings need no quotes.
  Status set(std::string_view assignment);

  // kInvalidArgument naming every required key that nothing has given.
  Status check_required() const;

  // One line per key, sorted: key, type, range or names, default, help.
  std::string describe() const;

 private:
  enum class Type { kBool, kInt, kDouble, kString, kEnum, kStringList };
  struct Field {
    std::string key;
    Type type = Type::kInt;
    std::string allowed;  // "integer in [1, 1024]", "one of: exact, fast"
    std::string default_text;
    std::string help;
    bool required = false;
    bool given = false;
    // "" when the value is allowed, else what is wrong with it. Called before apply.
    std::function<std::string(const ConfigValue&)> problem;
    std::function<void(const ConfigValue&)> apply;
    std::vector<std::string>* list = nullptr;  // kStringList only
  };
  struct Assignment {
    Field* field;
    ConfigValue value;
  };

  void add(Field field);
  void add_checked_int(std::string key, ConfigRange<int64_t> range, int64_t default_value,
                       std::function<void(int64_t)> apply);
  void add_checked_enum(std::string key, std::vector<std::string> names, size_t default_index,
                        ConfigHelp help, std::function<void(size_t)> apply);
  Field* find(std::string_view key);
  Status unknown_key(std::string_view where, std::string_view key) const;
  Result<Assignment> check(std::string_view where, std::string_view key, ConfigValue value);
  Result<std::vector<Assignment>> check_list(std::string_view key, std::string_view text);
  void commit(const std::vector<Assignment>& assignments);

  std::vector<Field> fields_;  // sorted by key
};

template <std::integral T>
void ConfigSchema::add_int(std::string key, T* variable,
                           ConfigRange<std::type_identity_t<T>> range) {
  static_assert(!std::is_same_v<T, bool>, "use add_bool");
  constexpr auto clamp = [](T n) {
    return std::cmp_greater(n, std::numeric_limits<int64_t>::max())
               ? std::numeric_limits<int64_t>::max()
               : static_cast<int64_t>(n);
  };
  add_checked_int(std::move(key),
                  {.min = clamp(range.min),
                   .max = clamp(range.max),
                   .required = range.required,
                   .help = std::move(range.help)},
                  clamp(*variable), [variable](int64_t n) { *variable = static_cast<T>(n); });
}

template <typename Enum>
void ConfigSchema::add_enum(std::string key, Enum* variable,
                            std::vector<std::pair<std::string, std::type_identity_t<Enum>>> names,
                            ConfigHelp help) {
  std::vector<std::string> labels;
  size_t default_index = names.size();
  for (size_t i = 0; i < names.size(); ++i) {
    labels.push_back(names[i].first);
    if (names[i].second == *variable) default_index = i;
  }
  add_checked_enum(std::move(key), std::move(labels), default_index, std::move(help),
                   [variable, names](size_t i) { *variable = names[i].second; });
}

}  // namespace perdure::base
