#pragma once
// HostRegion: zeroed memory of the host that is resident from the start. First touch of a fresh 4
// KiB page costs about 12 us on virtual machines whose page tables are kept in software; huge pages
// that are populated at once cost a hundredth of that.

#include <cstddef>
#include <utility>

#include "base/status.h"

namespace perdure::kernels {

// Owns one anonymous mapping, aligned to 4 KiB (2 MiB from 2 MiB on). Move-only; any thread may
// free it.
class HostRegion {
 public:
  HostRegion() = default;
  HostRegion(HostRegion&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  HostRegion& operator=(HostRegion&& other) noexcept;
  ~HostRegion();

  // kResourceExhausted when the system has no such memory. Zero bytes give one page.
  static base::Result<HostRegion> make(size_t bytes);

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return bytes_; }  // at least what was asked for

 private:
  HostRegion(std::byte* data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace perdure::kernels
