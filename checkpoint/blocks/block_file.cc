#include "checkpoint/blocks/block_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/posix_files.h"

namespace perdure::checkpoint::blocks {
namespace {

// Kernels before 6.1, and some file systems after, do not tell what O_DIRECT needs. This is enough
// for nearly all; where it is not, the first block is refused and the file goes on buffered.
constexpr Alignment kAlignmentUntold = {.offset = 4096, .memory = 4096};
constexpr uint32_t kAlignmentMax = 4096;

std::string file_system_name(int fd) {
  struct statfs info = {};
  if (::fstatfs(fd, &info) != 0) return "unknown file system";
  switch (info.f_type) {
    case TMPFS_MAGIC:
      return "tmpfs";
    case EXT4_SUPER_MAGIC:
      return "ext4";
    case XFS_SUPER_MAGIC:
      return "xfs";
    case OVERLAYFS_SUPER_MAGIC:
      return "overlay";
    case NFS_SUPER_MAGIC:
      return "nfs";
    case FUSE_SUPER_MAGIC:
      return "fuse";
    default: {
      char text[40];
      std::snprintf(text, sizeof(text), "file system 0x%lx",
                    static_cast<unsigned long>(info.f_type));
      return text;
    }
  }
}

// As of what is known of the file: direct, with which alignment, or else why not.
struct DirectAnswer {
  bool is_direct = false;
  Alignment alignment;
};
DirectAnswer ask_direct(int fd, const struct statx& info) {
  struct statfs file_system = {};
  // Takes O_DIRECT, but has nothing but the page cache.
  if (::fstatfs(fd, &file_system) == 0 && file_system.f_type == TMPFS_MAGIC) return {};
  if ((info.stx_mask & STATX_DIOALIGN) == 0)
    return {.is_direct = true, .alignment = kAlignmentUntold};
  const Alignment told = {.offset = info.stx_dio_offset_align, .memory = info.stx_dio_mem_align};
  const auto usable = [](uint32_t a) { return a > 0 && a <= kAlignmentMax && (a & (a - 1)) == 0; };
  return {.is_direct = usable(told.offset) && usable(told.memory), .alignment = told};
}

}  // namespace

base::Result<BlockFile> BlockFile::open(std::string_view path, int flags, ToldFileSystems& told) {
  const std::string name(path);
  // O_NONBLOCK: the other end of a pipe is not waited for.
  bool asked_direct = true;
  int fd = ::open(name.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_DIRECT, 0644);
  if (fd < 0 && errno == EINVAL) {
    asked_direct = false;
    fd = ::open(name.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644);
  }
  if (fd < 0) return base::errno_status(errno, "open", path);
  BlockFile file(fd, path);
  RETURN_IF_ERROR(file.look(asked_direct, told));
  return file;
}

base::Status BlockFile::look(bool asked_direct, ToldFileSystems& told) {
  struct statx info = {};
  if (::statx(fd_, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE | STATX_DIOALIGN, &info) != 0) {
    return base::errno_status(errno, "stat", path_);
  }
  if (S_ISDIR(info.stx_mode)) return base::errno_status(EISDIR, "open", path_);
  if (!S_ISREG(info.stx_mode)) {
    return base::invalid_argument("open " + path_ + ": is a device, a pipe or a socket, no file");
  }
  size_bytes_ = info.stx_size;
  device_ = (uint64_t{info.stx_dev_major} << 32) | info.stx_dev_minor;
  const DirectAnswer answer = ask_direct(fd_, info);
  alignment_ = answer.alignment;
  is_direct_ = asked_direct && answer.is_direct;
  mode_ = "direct";
  if (!is_direct_) return go_buffered("no direct I/O here", told);
  // io_uring would hand back what it can not start at once.
  return set_flags(O_DIRECT);
}

base::Result<BlockFile> BlockFile::open_to_write(std::string_view path, uint64_t file_bytes,
                                                 ToldFileSystems& told) {
  ASSIGN_OR_RETURN(BlockFile file, open(path, O_WRONLY | O_CREAT, told));
  RETURN_IF_ERROR(file.reserve(file_bytes));
  return file;
}

base::Result<BlockFile> BlockFile::open_to_read(std::string_view path, ToldFileSystems& told) {
  return open(path, O_RDONLY, told);
}

BlockFile::BlockFile(BlockFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      path_(std::move(other.path_)),
      size_bytes_(other.size_bytes_),
      device_(other.device_),
      is_direct_(other.is_direct_),
      alignment_(other.alignment_),
      mode_(std::move(other.mode_)) {}

// Not finished: an error was told already, or the file was only read.
BlockFile::~BlockFile() {
  if (fd_ >= 0) ::close(fd_);
}

base::Status BlockFile::go_buffered(std::string_view why, ToldFileSystems& told) {
  RETURN_IF_ERROR(set_flags(0));
  is_direct_ = false;
  const std::string name = file_system_name(fd_);
  mode_ = "buffered (" + name + ")";
  if (told.insert(device_).second) {
    LOG_INFO("checkpoint", "files go through the page cache", KV("file_system", name),
             KV("why", why), KV("first", path_));
  }
  return base::Status::ok();
}

// Those of fcntl: without O_NONBLOCK, with O_DIRECT or without.
base::Status BlockFile::set_flags(int flags) {
  if (::fcntl(fd_, F_SETFL, flags) == 0) return base::Status::ok();
  return base::errno_status(errno, "set the flags of", path_);
}

base::Status BlockFile::reserve(uint64_t file_bytes) {
  if (file_bytes == 0) return base::Status::ok();
  const uint64_t padding = alignment().offset - 1;
  const uint64_t bytes = (file_bytes + padding) & ~padding;
  int error = 0;
  do {
    error = ::fallocate(fd_, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  // A file system that can not reserve finds out while it is written.
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) return base::Status::ok();
  return base::errno_status(error, "reserve " + std::to_string(bytes) + " bytes for", path_);
}

base::Status BlockFile::finish(uint64_t file_bytes) {
  int error = 0;
  do {
    error = ::ftruncate(fd_, static_cast<off_t>(file_bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error != 0) {
    return base::errno_status(error, "cut to " + std::to_string(file_bytes) + " bytes", path_);
  }
  // Once: after a failure the kernel has forgotten which pages were not written, and would say ok.
  if (::fdatasync(fd_) != 0) return base::errno_status(errno, "sync", path_);
  if (::close(std::exchange(fd_, -1)) != 0) return base::errno_status(errno, "close", path_);
  return base::Status::ok();
}

base::Status BlockFile::error(int number, std::string_view action, uint64_t offset) const {
  return base::errno_status(number, action, path_ + " at byte " + std::to_string(offset));
}

}  // namespace perdure::checkpoint::blocks
