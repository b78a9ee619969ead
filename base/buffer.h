#pragma once
// Arena: one region of prefaulted, huge-page, zero-filled memory, handed out front to back.
//
// A page fault can cost 12 us on virtual machines; the arena takes all of them at start, so that
// the step path never does.

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <type_traits>

#include "base/status.h"
#include "base/units.h"

namespace perdure::base {

// How create() makes the pages present.
enum class Prefault {
  kPopulate,  // madvise(MADV_POPULATE_WRITE); on kernels without it, kTouch
  kTouch,     // writes one byte per page
  kNone,      // pages appear at first touch
};

// Owns the region; what it hands out lives as long as the arena, also when the arena is moved.
// One thread allocates; the memory itself may be used by any thread.
class Arena {
 public:
  // kResourceExhausted when the memory cannot be had; kInvalidArgument for a size of zero.
  static Result<Arena> create(size_t size_bytes, Prefault prefault = Prefault::kPopulate);

  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  // Zero-filled memory. `alignment` is a power of two up to a page. kResourceExhausted when the
  // rest is too small.
  Result<std::span<std::byte>> allocate(size_t size_bytes, size_t alignment = 64);

  // The same for `count` objects of a type for which all bits zero is a value.
  template <typename T>
  Result<std::span<T>> allocate_array(size_t count);

  size_t used_bytes() const { return used_bytes_; }
  size_t size_bytes() const { return size_bytes_; }

 private:
  Arena() = default;
  void release();

  std::byte* mapping_ = nullptr;  // as mmap gave it
  size_t mapping_bytes_ = 0;
  std::byte* begin_ = nullptr;  // mapping_ moved up to a huge page border
  size_t size_bytes_ = 0;
  size_t used_bytes_ = 0;
};

template <typename T>
Result<std::span<T>> Arena::allocate_array(size_t count) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  if (count > std::numeric_limits<size_t>::max() / sizeof(T)) {
    return resource_exhausted("arena: an array of " + std::to_string(count) + " elements of " +
                              std::to_string(sizeof(T)) + " bytes is not addressable");
  }
  constexpr size_t kAlignment = alignof(T) > 64 ? alignof(T) : 64;
  ASSIGN_OR_RETURN(const std::span<std::byte> bytes, allocate(count * sizeof(T), kAlignment));
  return std::span<T>(reinterpret_cast<T*>(bytes.data()), count);
}

}  // namespace perdure::base
