#include "runtime/data/token_file_mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/posix_files.h"

namespace perdure::runtime::data {
namespace {

using base::Result;

// Closes on every path out of open().
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC;
  const int fd = ::open(path.c_str(), kFlags);  // tidy: allow banned-call because of the mapping
  const Descriptor file(fd);
  if (file.get() < 0) return base::errno_status(errno, "open", path);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return base::errno_status(errno, "stat", path);
  if (!S_ISREG(info.st_mode)) return base::invalid_argument(path + ": is not a file");
  if (info.st_size == 0) return MappedFile(base::ByteSpan());
  const size_t size_bytes = static_cast<size_t>(info.st_size);
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return base::errno_status(errno, "map", path);
  return MappedFile(base::ByteSpan(static_cast<const std::byte*>(memory), size_bytes));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  CHECK_EQ(::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()), 0);
}

}  // namespace perdure::runtime::data
