#include "base/posix_shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/posix_files.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

namespace perdure::base {
namespace {

// What the system could give without swapping. Reserving more would not fail but bring the machine
// down: shared memory has no limit of its own.
size_t available_bytes() {
  const int descriptor = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return ~size_t{0};
  char text[4096] = {};
  const ssize_t count = ::read(descriptor, text, sizeof text - 1);  // a zero stays at its end
  ::close(descriptor);
  const std::string_view info(text, count > 0 ? static_cast<size_t>(count) : 0);
  constexpr std::string_view kField = "MemAvailable:";
  const size_t at = info.find(kField);
  if (at == std::string_view::npos) return ~size_t{0};
  return std::strtoull(info.data() + at + kField.size(), nullptr, 10) * 1024;
}

}  // namespace

Result<SharedMemory> SharedMemory::make(std::string_view name) {
  const std::string text(name);
  const int descriptor = ::memfd_create(text.c_str(), MFD_CLOEXEC);
  if (descriptor < 0) return errno_status(errno, "make shared memory", name);
  return SharedMemory(descriptor);
}

Result<SharedMemory> SharedMemory::open(std::string_view path) {
  const std::string text(path);
  const int descriptor = ::open(text.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return errno_status(errno, "open shared memory", path);
  return SharedMemory(descriptor);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      mapped_(std::exchange(other.mapped_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

SharedMemory::~SharedMemory() {
  unmap();
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string SharedMemory::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
}

Result<size_t> SharedMemory::size_bytes() const {
  struct stat info {};
  if (::fstat(descriptor_, &info) != 0) return errno_status(errno, "stat", path());
  return static_cast<size_t>(info.st_size);
}

void SharedMemory::unmap() {
  if (data_ != nullptr) ::munmap(data_, mapped_);
  data_ = nullptr;
  mapped_ = 0;
}

Result<MutableByteSpan> SharedMemory::map(size_t bytes) {
  ASSIGN_OR_RETURN(const size_t before, size_bytes());
  const size_t wanted = std::max(before, bytes);
  if (data_ != nullptr && mapped_ == wanted) return this->bytes();
  // Reserved, not only promised: a page that is not there when it is touched would end the process.
  if (wanted > before) {
    const size_t available = available_bytes();
    if (wanted - before > available) {
      return resource_exhausted("shared memory of " + std::to_string(wanted) + " bytes: only " +
                                std::to_string(available) + " more are available");
    }
    const int error = ::posix_fallocate(descriptor_, static_cast<off_t>(before),
                                        static_cast<off_t>(wanted - before));
    if (error != 0) {
      (void)::ftruncate(descriptor_, static_cast<off_t>(before));
      return errno_status(error, "grow shared memory to " + std::to_string(wanted) + " bytes",
                          path());
    }
  }
  if (wanted == 0) return MutableByteSpan();
  void* data = ::mmap(nullptr, wanted, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED) return errno_status(errno, "map shared memory", path());
  (void)::madvise(data, wanted, MADV_POPULATE_WRITE);  // an older kernel fills its tables later
  unmap();
  data_ = static_cast<std::byte*>(data);
  mapped_ = wanted;
  return this->bytes();
}

}  // namespace perdure::base
