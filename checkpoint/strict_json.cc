#include "checkpoint/strict_json.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/check.h"

namespace perdure::checkpoint {
namespace {

using base::Status;
using Json = nlohmann::json;

constexpr std::string_view kWhitespace = " \t\n\r";

// Stands between the library's parser and a receiver.
class StrictHandler final : public nlohmann::json_sax<Json> {
 public:
  StrictHandler(const JsonLimits& limits, JsonReceiver& receiver)
      : limits_(limits), receiver_(receiver) {}

  const Status& status() const { return status_; }

  bool null() override { return take(receiver_.on_other()); }
  bool boolean(bool) override { return take(receiver_.on_other()); }
  // Only tokens with a minus come here, "-0" too.
  bool number_integer(number_integer_t) override { return take(receiver_.on_other()); }
  bool number_unsigned(number_unsigned_t value) override {
    return take(receiver_.on_integer(value));
  }
  bool number_float(number_float_t, const string_t&) override { return take(receiver_.on_other()); }
  bool string(string_t& value) override { return take(receiver_.on_string(value)); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override {
    return take(receiver_.on_begin_object()) && open({.is_object = true});
  }
  bool start_array(size_t) override {
    return take(receiver_.on_begin_array()) && open({.is_object = false});
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    std::set<std::string>& keys = open_.back().keys;
    if (keys.size() == limits_.keys_max) {
      return take(base::data_loss("V16: an object has more than " +
                                  std::to_string(limits_.keys_max) + " keys"));
    }
    if (!keys.insert(key).second) {
      return take(
          base::data_loss("V6: the key " + in_quotes(key) + " is there twice in one object"));
    }
    return take(receiver_.on_key(key));
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    if (has_ended_) {
      return take(
          base::data_loss("V5: something other than whitespace follows the JSON, before "
                          "byte " +
                          std::to_string(position)));
    }
    return take(base::data_loss("V6: no JSON any more at byte " + std::to_string(position)));
  }

 private:
  struct Level {
    bool is_object = false;
    std::set<std::string> keys;
  };

  bool take(Status status) {
    if (status_.is_ok()) status_ = std::move(status);
    return status_.is_ok();
  }

  bool open(Level level) {
    if (open_.size() == limits_.depth_max) {
      return take(base::data_loss("V6: more than " + std::to_string(limits_.depth_max) +
                                  " objects and arrays inside each other"));
    }
    open_.push_back(std::move(level));
    return true;
  }

  bool close() {
    CHECK(!open_.empty());
    open_.pop_back();
    has_ended_ = open_.empty();
    return take(receiver_.on_end());
  }

  const JsonLimits limits_;
  JsonReceiver& receiver_;
  std::vector<Level> open_;
  bool has_ended_ = false;
  Status status_;
};

// Bytes of the UTF-8 sequence that `text` begins with, 0 when it is none: too long for its
// character, a surrogate, above U+10FFFF, cut.
size_t sequence_bytes(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto follows = [&](size_t i, uint8_t low, uint8_t high) {
    return i < text.size() && at(i) >= low && at(i) <= high;
  };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const uint8_t low = first == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = first == 0xED ? 0x9F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const uint8_t low = first == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = first == 0xF4 ? 0x8F : 0xBF;
    return follows(1, low, high) && follows(2, 0x80, 0xBF) && follows(3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// The place of the first byte that is no UTF-8.
size_t utf8_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t bytes = sequence_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

}  // namespace

base::Status read_strict_json(std::string_view text, const JsonLimits& limits,
                              JsonReceiver& receiver) {
  if (const size_t good = utf8_bytes(text); good != text.size()) {
    return base::data_loss("V4: not UTF-8 at byte " + std::to_string(good));
  }
  if (text.starts_with("\xEF\xBB\xBF")) return base::data_loss("V4: begins with a byte order mark");
  const size_t first = text.find_first_not_of(kWhitespace);
  if (first == std::string_view::npos || text[first] != '{') {
    return base::data_loss("V5: the first byte that is no whitespace must be '{'");
  }
  // The library takes a zero byte for the end of the text and would not look at what follows.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return base::data_loss("V5: a zero byte at byte " + std::to_string(zero));
  }
  StrictHandler handler(limits, receiver);
  const bool is_good = Json::sax_parse(text.data(), text.data() + text.size(), &handler);
  CHECK_EQ(is_good, handler.status().is_ok());
  return handler.status();
}

bool is_utf8(std::string_view text) { return utf8_bytes(text) == text.size(); }

std::string in_quotes(std::string_view name) {
  constexpr size_t kBytesMax = 120;
  std::string text = "'";
  for (const char c : name.substr(0, kBytesMax)) {
    text += static_cast<uint8_t>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  // A cut in the middle of a character leaves none of it.
  text.resize(1 + utf8_bytes(std::string_view(text).substr(1)));
  return text + (name.size() > kBytesMax ? "...'" : "'");
}

void append_json_string(std::string& out, std::string_view utf8) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : utf8) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace perdure::checkpoint
