#include "kernels/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

namespace perdure::kernels {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kRegionMax = size_t{1} << 46;

base::Status mapping_error(size_t bytes, int error) {
  return base::resource_exhausted("cannot get " + std::to_string(bytes) +
                                  " bytes of memory: " + std::strerror(error));
}

// Makes every page present. Kernels before 5.14 lack MADV_POPULATE_WRITE: there, each page is
// touched.
base::Status populate(std::byte* data, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (::madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return base::Status::ok();
  if (errno != EINVAL) return mapping_error(bytes, errno);
#endif
  for (size_t at = 0; at < bytes; at += kPage)
    *static_cast<volatile std::byte*>(data + at) = std::byte{0};
  return base::Status::ok();
}

}  // namespace

base::Result<HostRegion> HostRegion::make(size_t bytes) {
  if (bytes > kRegionMax) return mapping_error(bytes, ENOMEM);
  const size_t unit = bytes >= kHugePage ? kHugePage : kPage;
  const size_t size = (bytes + unit - 1) / unit * unit + (bytes == 0 ? unit : 0);
  const size_t slack = unit == kHugePage ? kHugePage : 0;
  void* mapped =
      ::mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return mapping_error(bytes, errno);
  auto* first = static_cast<std::byte*>(mapped);
  const size_t lead = slack == 0 ? 0 : (unit - reinterpret_cast<uintptr_t>(first) % unit) % unit;
  if (lead > 0) ::munmap(first, lead);
  if (slack > lead) ::munmap(first + lead + size, slack - lead);

  HostRegion region(first + lead, size);
  if (slack > 0) ::madvise(region.data_, size, MADV_HUGEPAGE);  // advice: worth having, not needed
  RETURN_IF_ERROR(populate(region.data_, size));
  return region;
}

HostRegion& HostRegion::operator=(HostRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

HostRegion::~HostRegion() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace perdure::kernels
