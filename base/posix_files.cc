#include "base/posix_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace perdure::base {
namespace {

StatusCode code_of(int error) {
  switch (error) {
    case ENOENT:
      return StatusCode::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
      return StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
    case EBUSY:
      return StatusCode::kFailedPrecondition;
    case EISDIR:
    case ENOTDIR:
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
      return StatusCode::kInvalidArgument;
    case EIO:
      return StatusCode::kDataLoss;
    default:
      return StatusCode::kInternal;
  }
}

int open_flags(OpenMode mode) {
  switch (mode) {
    case OpenMode::kRead:
      return O_RDONLY;
    case OpenMode::kReadWrite:
      return O_RDWR;
    case OpenMode::kCreateNew:
      return O_RDWR | O_CREAT | O_EXCL;
    case OpenMode::kTruncate:
      return O_RDWR | O_CREAT | O_TRUNC;
    case OpenMode::kAppend:
      return O_RDWR | O_CREAT | O_APPEND;
  }
  CHECK(false) << "open mode " << static_cast<int>(mode);
  return 0;
}

class PosixFile final : public File {
 public:
  PosixFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixFile() override {
    const Status status = close();
    if (!status.is_ok()) LOG_WARNING("files", "close failed", KV("error", status));
  }

  Result<size_t> pread(uint64_t offset, MutableByteSpan buffer) override {
    RETURN_IF_ERROR(check_open());
    size_t done_bytes = 0;
    while (done_bytes < buffer.size()) {
      const ssize_t n = ::pread(fd_, buffer.data() + done_bytes, buffer.size() - done_bytes,
                                static_cast<off_t>(offset + done_bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status(errno, "read", path_);
      if (n == 0) break;
      done_bytes += static_cast<size_t>(n);
    }
    return done_bytes;
  }

  Status pwrite(uint64_t offset, ByteSpan bytes) override {
    RETURN_IF_ERROR(check_open());
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status(errno, "write", path_);
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return Status::ok();
  }

  Status append(ByteSpan bytes) override {
    ASSIGN_OR_RETURN(const uint64_t end, size());
    // With O_APPEND the kernel ignores the offset, so other appenders are not overwritten.
    return pwrite(end, bytes);
  }

  Status sync() override {
    RETURN_IF_ERROR(check_open());
    return ::fsync(fd_) == 0 ? Status::ok() : errno_status(errno, "sync", path_);
  }

  Result<uint64_t> size() const override {
    RETURN_IF_ERROR(check_open());
    struct stat info = {};
    if (::fstat(fd_, &info) != 0) return errno_status(errno, "stat", path_);
    return static_cast<uint64_t>(info.st_size);
  }

  Status truncate(uint64_t size_bytes) override {
    RETURN_IF_ERROR(check_open());
    if (::ftruncate(fd_, static_cast<off_t>(size_bytes)) != 0) {
      return errno_status(errno, "truncate", path_);
    }
    return Status::ok();
  }

  Status close() override {
    const int fd = std::exchange(fd_, -1);
    if (fd < 0 || ::close(fd) == 0) return Status::ok();
    return errno_status(errno, "close", path_);
  }

 private:
  Status check_open() const {
    return fd_ >= 0 ? Status::ok() : failed_precondition(path_ + ": file is closed");
  }

  int fd_;
  const std::string path_;
};

}  // namespace

Status errno_status(int error, std::string_view action, std::string_view path) {
  return Status(code_of(error),
                std::string(action) + " " + std::string(path) + ": " + std::strerror(error));
}

Result<std::unique_ptr<File>> PosixFiles::open(std::string_view path, OpenMode mode) {
  const std::string name(path);
  const int fd = ::open(name.c_str(), open_flags(mode) | O_CLOEXEC, 0644);
  if (fd < 0) return errno_status(errno, "open", path);
  std::unique_ptr<File> file = std::make_unique<PosixFile>(fd, name);
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return errno_status(errno, "stat", path);
  if (S_ISDIR(info.st_mode)) return errno_status(EISDIR, "open", path);
  return file;
}

Result<FileInfo> PosixFiles::stat(std::string_view path) {
  struct stat info = {};
  if (::stat(std::string(path).c_str(), &info) != 0) return errno_status(errno, "stat", path);
  if (S_ISDIR(info.st_mode)) return FileInfo{.kind = FileKind::kDirectory, .size_bytes = 0};
  return FileInfo{.kind = FileKind::kFile, .size_bytes = static_cast<uint64_t>(info.st_size)};
}

Status PosixFiles::rename(const RenamePaths& paths) {
  if (::rename(std::string(paths.from).c_str(), std::string(paths.to).c_str()) != 0) {
    return errno_status(errno, "rename", std::string(paths.from) + " to " + std::string(paths.to));
  }
  return Status::ok();
}

Status PosixFiles::remove(std::string_view path) {
  if (std::remove(std::string(path).c_str()) != 0) return errno_status(errno, "remove", path);
  return Status::ok();
}

Status PosixFiles::make_dirs(std::string_view path) {
  for (size_t end = 1; end <= path.size(); ++end) {
    if (end != path.size() && path[end] != '/') continue;
    const std::string prefix(path.substr(0, end));
    if (::mkdir(prefix.c_str(), 0755) != 0 && errno != EEXIST) {
      return errno_status(errno, "make directory", prefix);
    }
  }
  ASSIGN_OR_RETURN(const FileInfo info, stat(path));
  return info.kind == FileKind::kDirectory ? Status::ok()
                                           : errno_status(ENOTDIR, "make directory", path);
}

Result<std::vector<std::string>> PosixFiles::list(std::string_view path) {
  DIR* dir = ::opendir(std::string(path).c_str());
  if (dir == nullptr) return errno_status(errno, "list", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  ::closedir(dir);
  if (error != 0) return errno_status(error, "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

Status PosixFiles::sync_dir(std::string_view path) {
  const int fd = ::open(std::string(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno_status(errno, "open directory", path);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  return error == 0 ? Status::ok() : errno_status(error, "sync directory", path);
}

}  // namespace perdure::base
