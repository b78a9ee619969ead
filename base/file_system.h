#pragma once
// Seam: files. Real programs use PosixFiles, simulated ones chaos' SimFiles, which forgets what was
// not synced.
//
// All calls block: components call them on a worker thread or where a pause does no harm. Errors,
// for every call: kNotFound, kAlreadyExists, kResourceExhausted (disk, quota or descriptors are
// used up), kFailedPrecondition (rights, read-only), kInvalidArgument (a directory where a file
// should be, ...), kDataLoss (the device reports an I/O error: the data is not to be trusted and a
// failed sync is not to be repeated), kUnavailable (this simulated host is dead).
//
// Durability: file contents are safe after File::sync(); a new name, a rename or a removal is safe
// after FileSystem::sync_dir() on its directory.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace perdure::base {

enum class OpenMode {
  kRead,       // must exist
  kReadWrite,  // must exist
  kCreateNew,  // must not exist; read and write
  kTruncate,   // created or emptied; read and write
  kAppend,     // created if missing; read and append
};

// One open file. One thread at a time. Destroying it closes it; close() also tells the error.
class File {
 public:
  virtual ~File() = default;

  // Reads at `offset` until `buffer` is full or the file ends; gives the count of bytes read.
  virtual Result<size_t> pread(uint64_t offset, MutableByteSpan buffer) = 0;

  // Writes all of `bytes` at `offset` (extending the file) or fails; after a failure any part may
  // be there.
  virtual Status pwrite(uint64_t offset, ByteSpan bytes) = 0;

  // Writes all of `bytes` at the end, with the same failure rule.
  virtual Status append(ByteSpan bytes) = 0;

  // Makes contents and size durable.
  virtual Status sync() = 0;

  virtual Result<uint64_t> size() const = 0;
  virtual Status truncate(uint64_t size_bytes) = 0;

  // Later calls on this object give kFailedPrecondition. Closing twice is ok. Does not sync.
  virtual Status close() = 0;
};

enum class FileKind { kFile, kDirectory };

struct FileInfo {
  FileKind kind = FileKind::kFile;
  uint64_t size_bytes = 0;
};

struct RenamePaths {
  std::string_view from;
  std::string_view to;  // replaced when it is a file
};

// Any thread. Paths use '/'; relative ones start at the process' directory.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual Result<std::unique_ptr<File>> open(std::string_view path, OpenMode mode) = 0;
  virtual Result<FileInfo> stat(std::string_view path) = 0;

  // Atomic: a reader sees the old or the new file.
  virtual Status rename(const RenamePaths& paths) = 0;

  // A file or an empty directory.
  virtual Status remove(std::string_view path) = 0;

  // Makes a directory and its missing parents; ok when it exists.
  virtual Status make_dirs(std::string_view path) = 0;

  // Names (not paths) in a directory, sorted.
  virtual Result<std::vector<std::string>> list(std::string_view path) = 0;

  // Makes the names in a directory durable.
  virtual Status sync_dir(std::string_view path) = 0;
};

// The part of `path` before its last '/', "." when there is none.
std::string_view parent_path(std::string_view path);

// The whole file; kResourceExhausted when it is larger than `size_bytes_max`.
Result<std::vector<std::byte>> read_file(FileSystem& files, std::string_view path,
                                         uint64_t size_bytes_max);

// Replaces a file so that after a crash it holds the old or the new contents, never a mix:
// write `path`.tmp, sync, rename, sync the directory.
Status replace_file(FileSystem& files, std::string_view path, ByteSpan contents);

}  // namespace perdure::base
