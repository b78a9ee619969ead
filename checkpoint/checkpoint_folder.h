#pragma once
// CheckpointFolder: the checkpoints in one directory, and the order in which one of them becomes
// true. Every name in it is written by this class; names of others are never touched.
//
//   <root>/step-000000000120.e7.3fa94c210d5b6e88/   epoch 7, attempt in hex
//       rank-0000.safetensors ...                   data, each synced by its writer
//       MANIFEST                                    there, whole: committed. Else: not a checkpoint
//
// Order of a save: make_dirs, sync of root; files, each written and synced; sync_dir of the save;
// (all writers have told their summaries) MANIFEST.tmp, sync, rename, sync_dir. A crash anywhere
// leaves the earlier checkpoints as they were, and this one either committed or leftover.
//
// Threads: one at a time. All calls block.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/retention.h"

namespace perdure::checkpoint {

struct SaveId {
  uint64_t step = 0;
  uint64_t epoch = 0;
  uint64_t attempt = 0;
  friend auto operator<=>(const SaveId&, const SaveId&) = default;
};
std::string folder_name(const SaveId& id);
std::optional<SaveId> parse_folder_name(std::string_view name);  // exact form only

class CheckpointFolder {
 public:
  CheckpointFolder(base::FileSystem& files, std::string root);

  // Makes the root and what is above it. What is committed in it after this stays so when the power
  // goes. Who only reads need not call it. Errors: of the disk; kInvalidArgument: root is a file.
  base::Status open();

  // -- saving
  // The save's folder, durable. kAlreadyExists.
  base::Result<std::string> begin(const SaveId& id);
  // All files are written and synced: makes their names durable. Checks their sizes.
  base::Status seal(const SaveId& id, const std::vector<FileRecord>& files);
  // The commit. The manifest is checked first, and that each of its files which lies in this folder
  // is there with its size. kAborted: `id` is older than `fence` (an epoch that has ended).
  // kAlreadyExists. After an error of the disk it may be there or not: abandon it.
  base::Status publish(const SaveId& id, const Manifest& manifest, uint64_t fence_epoch);
  // Removes what a failed save has left, committed or not. Ok when there is nothing.
  base::Status abandon(const SaveId& id);

  // -- reading
  struct Entry {
    SaveId id;
    bool committed = false;
    base::Status problem;  // committed is false: why (no manifest: ok)
    uint64_t bytes = 0;    // of the files that the manifest lists
  };
  // Ascending by step, epoch, attempt. Reads every manifest, and compares the sizes of files.
  base::Result<std::vector<Entry>> list();
  // kNotFound lists the steps that there are.
  base::Result<Manifest> read(const SaveId& id);
  // Of the committed ones, the newest, or the one of that step (of several: the newest epoch).
  // kNotFound says what there is instead: nothing, foreign names only, or unfinished saves. Damaged
  // ones are passed over; one that may be good but can not be read now (rights, a newer version) is
  // an error.
  base::Result<SaveId> newest();
  base::Result<SaveId> at_step(uint64_t step);
  std::string path(const SaveId& id) const;

  // -- keeping house
  // Removes one checkpoint: its manifest first, so that a crash never leaves one that lacks files.
  // kNotFound. Names in its folder that no save writes stay, and the folder with them.
  base::Status remove(const SaveId& id);
  // Applies retention (which see), and removes leftovers of epochs below `live_epoch`; of a step
  // that was saved twice only the newest is kept. Gives what was removed. `in_use` is never
  // removed, nor is what has a manifest that can not be read: a person decides about it. The first
  // error is told after all have been tried.
  base::Result<std::vector<SaveId>> clean(const RetentionRule& rule, uint64_t live_epoch,
                                          const std::vector<SaveId>& in_use);

 private:
  base::FileSystem& files_;
  const std::string root_;
};

}  // namespace perdure::checkpoint
