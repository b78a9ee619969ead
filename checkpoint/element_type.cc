#include "checkpoint/element_type.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace perdure::checkpoint {
namespace {

struct Entry {
  ElementType type;
  std::string_view name;
  uint32_t bits;
};

// In the order of the enum.
constexpr std::array<Entry, 22> kTypes = {{
    {ElementType::kBool, "BOOL", 8},
    {ElementType::kF4, "F4", 4},
    {ElementType::kF6E2M3, "F6_E2M3", 6},
    {ElementType::kF6E3M2, "F6_E3M2", 6},
    {ElementType::kU8, "U8", 8},
    {ElementType::kI8, "I8", 8},
    {ElementType::kF8E5M2, "F8_E5M2", 8},
    {ElementType::kF8E4M3, "F8_E4M3", 8},
    {ElementType::kF8E8M0, "F8_E8M0", 8},
    {ElementType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {ElementType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {ElementType::kI16, "I16", 16},
    {ElementType::kU16, "U16", 16},
    {ElementType::kF16, "F16", 16},
    {ElementType::kBF16, "BF16", 16},
    {ElementType::kI32, "I32", 32},
    {ElementType::kU32, "U32", 32},
    {ElementType::kF32, "F32", 32},
    {ElementType::kC64, "C64", 64},
    {ElementType::kF64, "F64", 64},
    {ElementType::kI64, "I64", 64},
    {ElementType::kU64, "U64", 64},
}};

const Entry& entry_of(ElementType type) {
  const auto index = static_cast<size_t>(type);
  CHECK_LT(index, kTypes.size());
  CHECK(kTypes[index].type == type);
  return kTypes[index];
}

}  // namespace

uint32_t size_bits(ElementType type) { return entry_of(type).bits; }

std::string_view to_string(ElementType type) { return entry_of(type).name; }

std::optional<ElementType> element_type_of(std::string_view name) {
  for (const Entry& entry : kTypes) {
    if (entry.name == name) return entry.type;
  }
  return std::nullopt;
}

}  // namespace perdure::checkpoint
