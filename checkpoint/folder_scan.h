#pragma once
// What a directory of checkpoints holds, and how to say so.

#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"

namespace perdure::checkpoint {

struct FolderScan {
  std::vector<CheckpointFolder::Entry> entries;  // ascending by id
  std::vector<std::string> names_of_others;
};

// kNotFound: there is no such directory. Errors that say nothing about one checkpoint alone (no
// descriptors left, a dead disk) fail the whole scan: an older checkpoint must not look newest
// because of them.
base::Result<FolderScan> scan_folder(base::FileSystem& files, const std::string& root);

// The manifest of one checkpoint, after all checks but those of hashes. kNotFound: there is none.
// kDataLoss: damaged, of another save, or a file of it lacks or has another size.
base::Result<Manifest> read_committed(base::FileSystem& files, const std::string& folder,
                                      const SaveId& id);

// Those of `records` that lie in the folder are there with their sizes, else kDataLoss.
base::Status check_sizes(base::FileSystem& files, const std::string& folder,
                         const std::vector<FileRecord>& records);

std::string to_text(const SaveId& id);  // "step 120 of epoch 7"
// "there are steps 100, 110, 120; 1 unfinished save, the newest of step 130 of epoch 7; ..."
std::string describe(const FolderScan& scan);

}  // namespace perdure::checkpoint
