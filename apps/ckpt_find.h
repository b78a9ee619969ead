#pragma once
// Finds the checkpoints that a person means, or says in one line what there is instead.

#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/status.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/folder_scan.h"

namespace perdure::apps {

// What `root` holds, at least one save. kNotFound: it is not there, empty, or of others.
// kInvalidArgument: it is a file, or one checkpoint and not the folder of all.
base::Result<checkpoint::FolderScan> scan_checkpoints(base::FileSystem& files,
                                                      const std::string& root);

// Committed: the one of that step, else the newest.
base::Result<checkpoint::SaveId> find_checkpoint(base::FileSystem& files, const std::string& root,
                                                 std::optional<uint64_t> step);

// Those of a step, whatever state they are in. kNotFound lists the steps.
base::Result<std::vector<checkpoint::CheckpointFolder::Entry>> entries_of_step(
    const checkpoint::FolderScan& scan, const std::string& root, uint64_t step);

// Nullptr: nothing is committed.
const checkpoint::CheckpointFolder::Entry* newest_committed(const checkpoint::FolderScan& scan);

// Prints it and gives the exit code.
int report_not_found(const base::Status& status);

}  // namespace perdure::apps
