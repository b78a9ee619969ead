#pragma once
// Element types of stored tensors: those of the safetensors format, by their names there.

#include <cstdint>
#include <optional>
#include <string_view>

namespace perdure::checkpoint {

enum class ElementType : uint8_t {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

uint32_t size_bits(ElementType type);          // 4, 6, 8, 16, 32 or 64
std::string_view to_string(ElementType type);  // "F32", "BF16", "F8_E4M3", "BOOL"
std::optional<ElementType> element_type_of(std::string_view name);

}  // namespace perdure::checkpoint
