#pragma once
// `perdure ckpt verify`: reads checkpoints whole and names each file, tensor and piece that is bad.

#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/folder_scan.h"

namespace perdure::apps {

enum class VerifyWhich : uint8_t { kNewest, kStep, kAll };

// What there is to verify. kNewest: the newest committed one, and what is newer and damaged: else
// nobody would hear of it. Unfinished saves promise nothing and are left out. kNotFound says what
// there is.
base::Result<std::vector<checkpoint::CheckpointFolder::Entry>> to_verify(
    const checkpoint::FolderScan& scan, const std::string& root, VerifyWhich which, uint64_t step);

// Prints what it finds. Gives how many checkpoints are not good.
size_t verify_checkpoints(base::FileSystem& files, const std::string& root,
                          const std::vector<checkpoint::CheckpointFolder::Entry>& entries);

}  // namespace perdure::apps
