#pragma once
// What `perdure ckpt ls` and `show` print.

#include <string>

#include "checkpoint/folder_scan.h"
#include "checkpoint/manifest.h"

namespace perdure::apps {

// A row for each save, and a line that counts them.
std::string print_scan(const checkpoint::FolderScan& scan);

// All but the tensors.
std::string print_manifest(const checkpoint::Manifest& manifest, const std::string& path);

// A row for each chunk; the first one of a tensor has its name, type and shape.
std::string print_tensors(const checkpoint::Manifest& manifest);

}  // namespace perdure::apps
