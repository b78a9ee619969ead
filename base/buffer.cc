#include "base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace perdure::base {
namespace {

constexpr size_t kHugePageBytes = 2_MiB;

size_t round_up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

void touch_pages(std::byte* begin, size_t size_bytes, size_t page_bytes) {
  for (size_t at = 0; at < size_bytes; at += page_bytes) {
    *const_cast<volatile std::byte*>(begin + at) = std::byte{0};
  }
}

Status make_present(std::byte* begin, size_t size_bytes, size_t page_bytes, Prefault prefault) {
  if (prefault == Prefault::kNone) return Status::ok();
  if (prefault == Prefault::kPopulate) {
    if (madvise(begin, size_bytes, MADV_POPULATE_WRITE) == 0) return Status::ok();
    if (errno != EINVAL) {
      return resource_exhausted("arena: cannot make " + std::to_string(size_bytes) +
                                " bytes present: " + std::strerror(errno));
    }
  }
  touch_pages(begin, size_bytes, page_bytes);
  return Status::ok();
}

}  // namespace

Result<Arena> Arena::create(size_t size_bytes, Prefault prefault) {
  if (size_bytes == 0) return invalid_argument("arena: size is zero");
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const bool huge = size_bytes >= kHugePageBytes;
  const size_t granule = huge ? kHugePageBytes : page_bytes;
  if (size_bytes > std::numeric_limits<size_t>::max() - 2 * granule) {
    return resource_exhausted("arena: " + std::to_string(size_bytes) +
                              " bytes are not addressable");
  }

  Arena arena;
  arena.size_bytes_ = round_up(size_bytes, granule);
  arena.mapping_bytes_ = arena.size_bytes_ + (huge ? granule : 0);
  void* mapping = mmap(nullptr, arena.mapping_bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return resource_exhausted("arena: mmap of " + std::to_string(arena.mapping_bytes_) +
                              " bytes: " + std::strerror(errno));
  }
  arena.mapping_ = static_cast<std::byte*>(mapping);
  const size_t address = reinterpret_cast<size_t>(mapping);
  arena.begin_ = arena.mapping_ + (round_up(address, granule) - address);
  // Advice: a kernel without huge pages gives small ones, and everything still works.
  if (huge) (void)madvise(arena.begin_, arena.size_bytes_, MADV_HUGEPAGE);
  RETURN_IF_ERROR(make_present(arena.begin_, arena.size_bytes_, page_bytes, prefault));
  return arena;
}

Arena::Arena(Arena&& other) noexcept { *this = std::move(other); }

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this == &other) return *this;
  release();
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  begin_ = std::exchange(other.begin_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  used_bytes_ = std::exchange(other.used_bytes_, 0);
  return *this;
}

Arena::~Arena() { release(); }

void Arena::release() {
  if (mapping_ == nullptr) return;
  CHECK_EQ(munmap(mapping_, mapping_bytes_), 0) << std::strerror(errno);
  mapping_ = nullptr;
}

Result<std::span<std::byte>> Arena::allocate(size_t size_bytes, size_t alignment) {
  CHECK(std::has_single_bit(alignment)) << alignment;
  CHECK_LE(alignment, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  const size_t first = round_up(used_bytes_, alignment);
  if (first > size_bytes_ || size_bytes > size_bytes_ - first) {
    return resource_exhausted("arena: " + std::to_string(size_bytes) + " bytes wanted, " +
                              std::to_string(size_bytes_ - used_bytes_) + " of " +
                              std::to_string(size_bytes_) + " left");
  }
  used_bytes_ = first + size_bytes;
  return std::span<std::byte>(begin_ + first, size_bytes);
}

}  // namespace perdure::base
