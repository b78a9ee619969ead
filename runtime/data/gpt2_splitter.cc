#include "runtime/data/gpt2_splitter.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>

#include "base/check.h"

namespace perdure::runtime::data {
namespace {

enum class CharClass : uint8_t { kLetter, kNumber, kSpace, kOther };

struct Char {
  CharClass kind;
  size_t bytes;
};

// Unicode's White_Space property beyond ASCII.
bool is_unicode_space(int32_t code) {
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

CharClass class_of(int32_t code) {
  if (is_unicode_space(code)) return CharClass::kSpace;
  switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharClass::kNumber;
    default:
      return CharClass::kOther;
  }
}

constexpr std::array<CharClass, 128> make_ascii_classes() {
  std::array<CharClass, 128> classes{};
  for (int c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool space = c == ' ' || (c >= 9 && c <= 13);
    classes[static_cast<size_t>(c)] = letter                 ? CharClass::kLetter
                                      : c >= '0' && c <= '9' ? CharClass::kNumber
                                      : space                ? CharClass::kSpace
                                                             : CharClass::kOther;
  }
  return classes;
}
constexpr std::array<CharClass, 128> kAscii = make_ascii_classes();

Char char_at(std::string_view text, size_t at) {
  const unsigned char first = static_cast<unsigned char>(text[at]);
  if (first < 128) return {kAscii[first], 1};
  utf8proc_int32_t code = -1;
  const utf8proc_ssize_t bytes =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                       static_cast<utf8proc_ssize_t>(text.size() - at), &code);
  if (bytes < 1) return {CharClass::kOther, 1};
  return {class_of(code), static_cast<size_t>(bytes)};
}

// End of the run of one class that begins at `at`.
size_t run_end(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != kind) break;
    at += c.bytes;
  }
  return at;
}

// 's 't 'm 'd 're 've 'll, in lower case only; 0 when there is none.
size_t contraction_bytes(std::string_view text) {
  if (text.size() < 2 || text[0] != '\'') return 0;
  const char c = text[1];
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return 2;
  if (text.size() < 3) return 0;
  const std::string_view two = text.substr(1, 2);
  return two == "re" || two == "ve" || two == "ll" ? 3 : 0;
}

// A run of blanks that something follows leaves its last blank to what follows; a single blank,
// which has nothing to leave, is a piece by itself.
size_t blanks_bytes(std::string_view text) {
  size_t end = 0;
  size_t last_bytes = 0;
  size_t count = 0;
  while (end < text.size()) {
    const Char c = char_at(text, end);
    if (c.kind != CharClass::kSpace) break;
    end += c.bytes;
    last_bytes = c.bytes;
    ++count;
  }
  return end == text.size() || count == 1 ? end : end - last_bytes;
}

}  // namespace

size_t gpt2_piece_bytes(std::string_view text) {
  CHECK(!text.empty());
  if (const size_t bytes = contraction_bytes(text); bytes > 0) return bytes;
  const Char first = char_at(text, 0);
  if (first.kind != CharClass::kSpace) return run_end(text, first.bytes, first.kind);
  if (text[0] == ' ' && text.size() > 1) {
    const Char second = char_at(text, 1);
    if (second.kind != CharClass::kSpace) return run_end(text, 1 + second.bytes, second.kind);
  }
  return blanks_bytes(text);
}

size_t gpt2_safe_cut(std::string_view text) {
  for (size_t at = text.size(); at-- > 1;) {
    const unsigned char before = static_cast<unsigned char>(text[at - 1]);
    const unsigned char here = static_cast<unsigned char>(text[at]);
    if (before < 128 && here < 128 && kAscii[before] != CharClass::kSpace &&
        kAscii[here] == CharClass::kSpace) {
      return at;
    }
  }
  return 0;
}

}  // namespace perdure::runtime::data
