#pragma once
// Seam: large files to a disk and back, past the page cache, many blocks in flight. Real: io_uring
// (checkpoint/blocks, the only user of liburing) with O_DIRECT where the file system has it, and
// plain blocking calls where io_uring is not to be had (old kernels, containers that forbid it).
//
// Threads: one call at a time per object; a call blocks until its file is done.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace perdure::checkpoint {

struct WriteFile {
  std::string path;      // made, or (recycled) overwritten in place when it is there
  base::ByteSpan image;  // whole file; 4096-aligned memory whose size is padded to 4096 goes direct
  uint64_t file_bytes = 0;  // of the file; at most image.size(), which may have padding after it
  const std::atomic<bool>* leave = nullptr;              // set: kCancelled soon
  std::function<void(uint64_t bytes_done)> on_progress;  // on the calling thread
};

struct ReadRange {
  uint64_t offset = 0;  // in the file; any alignment
  base::MutableByteSpan to;
};

class BlockFiles {
 public:
  virtual ~BlockFiles() = default;
  // Space is reserved before the first byte is written; contents and size are durable when it
  // returns ok (the name is not: sync the directory). Errors name the path and the offset:
  // kResourceExhausted (ENOSPC, EDQUOT), kDataLoss (EIO), kFailedPrecondition (EROFS, rights),
  // kNotFound (the directory), kCancelled. After an error the file may be there in part.
  virtual base::Status write(const WriteFile& request) = 0;
  // Reads all ranges, ascending and without overlap, of one file. kDataLoss: the file ends before.
  virtual base::Status read(std::string_view path, std::span<const ReadRange> ranges,
                            const std::atomic<bool>* leave) = 0;
  // "io_uring, direct", "io_uring, buffered (tmpfs)", "blocking, buffered (io_uring is not
  // allowed)": of the last file.
  virtual std::string mode() const = 0;
};

struct BlockOptions {
  size_t block_bytes = 4 << 20;
  size_t blocks_in_flight = 32;  // 128 MiB: a disk stays busy while the cores do other things
};
// io_uring when this kernel lets us, else blocking calls.
std::unique_ptr<BlockFiles> make_block_files(const BlockOptions& options);
std::unique_ptr<BlockFiles> make_blocking_files(const BlockOptions& options);
// kUnimplemented says why it can not be had.
base::Result<std::unique_ptr<BlockFiles>> make_uring_files(const BlockOptions& options);

}  // namespace perdure::checkpoint
