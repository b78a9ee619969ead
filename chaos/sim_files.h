#pragma once
// SimFiles: a disk in memory that loses what was not synced, as a disk does when the power goes.
//
// After a power loss
//   - file contents: each sector written since the last sync of its file holds the old or the new
//   bytes;
//   - names: a directory's changes since its last sync_dir are there all, or not at all.
// `keep_unsynced` is the probability of "new"; 0 is the strictest disk, values between tear writes.
// A name that survives may thus lead to a file whose contents did not: sync the file before its
// directory.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/random.h"
#include "base/status.h"

namespace perdure::chaos {

struct SimDiskOptions {
  uint64_t capacity_bytes = uint64_t{1} << 40;
  size_t sector_bytes = 512;
  double keep_unsynced = 0.5;
};

enum class FileAction {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kTruncate,
  kRename,
  kRemove,
  kMakeDirs,
  kList,
  kSyncDir
};

// One thread. Works alone, too, without a SimWorld.
class SimFiles final : public base::FileSystem {
 public:
  SimFiles(const SimDiskOptions& options, const base::SeededRandom& random);
  ~SimFiles() override;

  base::Result<std::unique_ptr<base::File>> open(std::string_view path,
                                                 base::OpenMode mode) override;
  base::Result<base::FileInfo> stat(std::string_view path) override;
  base::Status rename(const base::RenamePaths& paths) override;
  base::Status remove(std::string_view path) override;
  base::Status make_dirs(std::string_view path) override;
  base::Result<std::vector<std::string>> list(std::string_view path) override;
  base::Status sync_dir(std::string_view path) override;

  // The next `count` actions of this kind on paths that contain `path_part`, after the first
  // `skip`, fail with `error` and have no effect. Failed syncs leave the data unsynced.
  struct Fault {
    FileAction action;
    std::string path_part;
    uint64_t skip = 0;
    uint64_t count = 1;
    base::Status error;
  };
  void add_fault(Fault fault);

  // Flips a bit of what is stored, durable or not. kNotFound, or kInvalidArgument beyond the end.
  struct BitFlip {
    std::string_view path;
    uint64_t offset = 0;
    int bit = 0;
  };
  base::Status flip_bit(const BitFlip& flip);

  // The process is gone: all calls, also on open files, give kUnavailable until reconnect(). Files
  // opened before stay dead.
  void disconnect();
  void reconnect();

  // The same, after `action_count` more changes (writes, syncs, renames, ...) have been done: the
  // way to stop a program at each of its steps in turn.
  void disconnect_after(uint64_t action_count) { actions_left_ = action_count; }

  // Forgets what was not synced, as described above. For a disconnected disk, or files left open
  // turn stale.
  void lose_power();

  bool is_connected() const { return is_connected_; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t change_count() const { return change_count_; }

 private:
  friend class SimFile;
  struct Node;
  using NodePtr =
      std::shared_ptr<Node>;  // named by directories, and kept by open files after removal

  base::Status begin(FileAction action, std::string_view path);
  NodePtr find(std::string_view path) const;
  struct Place {
    NodePtr directory;
    std::string name;
  };
  base::Result<Place> find_place(std::string_view path) const;
  base::Status write(Node& node, uint64_t offset, base::ByteSpan bytes);
  base::Status resize(Node& node, uint64_t size_bytes);
  void unlink(Node& node);
  void sync_contents(Node& node);
  void forget_unsynced(Node& node);

  const SimDiskOptions options_;
  base::SeededRandom random_;
  NodePtr root_;
  std::vector<Fault> faults_;
  bool is_connected_ = true;
  uint64_t connection_ = 1;  // open files of an earlier one are stale
  uint64_t actions_left_ = ~uint64_t{0};
  uint64_t used_bytes_ = 0;
  uint64_t change_count_ = 0;
};

}  // namespace perdure::chaos
