// parse_toml: the only code that sees toml++.

#define TOML_EXCEPTIONS 0
// toml++ 3.3 asserts, or with NDEBUG tells the compiler, that a key begins after '['. A file may
// hold "[,"; the code behind the assertion reports that well.
#undef NDEBUG
#define TOML_ASSERT(expression) static_cast<void>(0)
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "base/config.h"

namespace perdure::base {
namespace {

// Walks a parsed document and collects its scalars.
class Flattener {
 public:
  explicit Flattener(std::string_view source_name) : source_name_(source_name) {}

  Status visit_table(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      RETURN_IF_ERROR(visit(node, prefix.empty() ? name : prefix + "." + name));
    }
    return Status::ok();
  }

  std::vector<ConfigEntry> take() {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const ConfigEntry& a, const ConfigEntry& b) { return a.line < b.line; });
    return std::move(entries_);
  }

 private:
  Status visit(const toml::node& node, const std::string& path) {
    if (const auto* table = node.as_table()) return visit_table(*table, path);
    if (const auto* array = node.as_array()) {
      const int line = static_cast<int>(node.source().begin.line);
      if (array->empty()) return add(path + "[]", std::monostate(), line);
      size_t index = 0;
      for (const toml::node& element : *array) {
        RETURN_IF_ERROR(visit(element, path + "[" + std::to_string(index++) + "]"));
      }
      return Status::ok();
    }
    const int line = static_cast<int>(node.source().begin.line);
    if (const auto* value = node.as_string()) return add(path, value->get(), line);
    if (const auto* value = node.as_integer()) return add(path, value->get(), line);
    if (const auto* value = node.as_floating_point()) return add(path, value->get(), line);
    if (const auto* value = node.as_boolean()) return add(path, value->get(), line);
    return invalid_argument(std::string(source_name_) + ":" + std::to_string(line) + ": " + path +
                            ": dates and times are not supported; write a string or a number");
  }

  Status add(const std::string& path, ConfigValue value, int line) {
    entries_.push_back({path, std::move(value), line});
    return Status::ok();
  }

  std::string_view source_name_;
  std::vector<ConfigEntry> entries_;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_toml(std::string_view text, std::string_view source_name) {
  const toml::parse_result parsed = toml::parse(text, source_name);
  if (!parsed) {
    std::ostringstream message;
    message << source_name << ":" << parsed.error().source().begin.line << ": "
            << parsed.error().description();
    return invalid_argument(message.str());
  }
  Flattener flattener(source_name);
  RETURN_IF_ERROR(flattener.visit_table(parsed.table(), ""));
  return flattener.take();
}

}  // namespace perdure::base
