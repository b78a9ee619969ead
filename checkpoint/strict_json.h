#pragma once
// JSON that others wrote, read without trust and without a tree of it in memory. Stricter than
// JSON's own rules where these leave a choice: no key twice in one object (compared after
// unescaping), a limit of depth and of keys, the text is one object and UTF-8 throughout.
// Rule numbers in errors: docs/formats/safetensors.md.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace perdure::checkpoint {

struct JsonLimits {
  size_t depth_max = 4;  // objects and arrays inside each other
  size_t keys_max = 0;   // of one object
};

// What the text holds, in its order. An error ends the reading and is its result.
class JsonReceiver {
 public:
  virtual ~JsonReceiver() = default;
  virtual base::Status on_begin_object() = 0;
  virtual base::Status on_begin_array() = 0;
  virtual base::Status on_end() = 0;  // of the innermost object or array
  virtual base::Status on_key(std::string& key) = 0;
  virtual base::Status on_string(std::string& value) = 0;
  // A token of digits only, up to 2^64 - 1.
  virtual base::Status on_integer(uint64_t value) = 0;
  // null, true, false, and numbers with a sign, a point, an exponent or too many digits.
  virtual base::Status on_other() = 0;
};

// kDataLoss: V4, V5, V6 or V16; else what the receiver gave.
base::Status read_strict_json(std::string_view text, const JsonLimits& limits,
                              JsonReceiver& receiver);

bool is_utf8(std::string_view text);
// "'a name'", cut and without control characters: for messages about names that others chose.
std::string in_quotes(std::string_view name);
void append_json_string(std::string& out, std::string_view utf8);

}  // namespace perdure::checkpoint
