#pragma once
// BlockFile: one open file that is written or read in blocks, past the page cache where its file
// system has that.

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "checkpoint/blocks/block_plan.h"

namespace perdure::checkpoint::blocks {

// File systems of which it was said that they are written through the page cache.
using ToldFileSystems = std::set<uint64_t>;

// Owns the descriptor. One thread at a time. Errors name the path; those of a block also where.
class BlockFile {
 public:
  // Makes the file, or opens what is there without a change, and reserves space for `file_bytes`.
  static base::Result<BlockFile> open_to_write(std::string_view path, uint64_t file_bytes,
                                               ToldFileSystems& told);
  static base::Result<BlockFile> open_to_read(std::string_view path, ToldFileSystems& told);

  BlockFile(BlockFile&& other) noexcept;
  BlockFile& operator=(BlockFile&&) = delete;
  ~BlockFile();

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }  // when it was opened

  bool is_direct() const { return is_direct_; }
  Alignment alignment() const { return is_direct_ ? alignment_ : Alignment{}; }
  const std::string& mode() const { return mode_; }  // "direct", "buffered (tmpfs)"
  // From now on through the page cache. Blocks that are under way are not touched.
  base::Status go_buffered(std::string_view why, ToldFileSystems& told);

  // Cuts the file to its size, makes it durable, closes it.
  base::Status finish(uint64_t file_bytes);

  base::Status error(int number, std::string_view action, uint64_t offset) const;

 private:
  BlockFile(int fd, std::string_view path) : fd_(fd), path_(path) {}
  static base::Result<BlockFile> open(std::string_view path, int flags, ToldFileSystems& told);
  base::Status look(bool asked_direct, ToldFileSystems& told);
  base::Status set_flags(int flags);
  base::Status reserve(uint64_t file_bytes);

  int fd_ = -1;
  std::string path_;
  uint64_t size_bytes_ = 0;
  uint64_t device_ = 0;
  bool is_direct_ = false;
  Alignment alignment_;
  std::string mode_;
};

}  // namespace perdure::checkpoint::blocks
