#include "apps/ckpt_find.h"

#include "apps/commands.h"

namespace perdure::apps {

using base::Result;
using base::Status;
using base::StatusCode;
using checkpoint::CheckpointFolder;
using checkpoint::FolderScan;
using checkpoint::SaveId;
using Entry = CheckpointFolder::Entry;

namespace {

std::string_view last_component(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

Status check_root(base::FileSystem& files, const std::string& root) {
  const Result<base::FileInfo> info = files.stat(root);
  if (!info.is_ok() && info.status().code() == StatusCode::kNotFound) {
    return base::not_found(root + " is not there: give the folder in which the checkpoints are");
  }
  RETURN_IF_ERROR(info.status());
  if (info->kind != base::FileKind::kDirectory) {
    return base::invalid_argument(root +
                                  " is a file: give the folder in which the checkpoints are");
  }
  const std::optional<SaveId> id = checkpoint::parse_folder_name(last_component(root));
  if (id || files.stat(root + "/" + std::string(checkpoint::kManifestName)).is_ok()) {
    return base::invalid_argument(root + " is one checkpoint: give the folder above it" +
                                  (id ? " and --step " + std::to_string(id->step) : ""));
  }
  return Status::ok();
}

}  // namespace

Result<FolderScan> scan_checkpoints(base::FileSystem& files, const std::string& root) {
  RETURN_IF_ERROR(check_root(files, root));
  ASSIGN_OR_RETURN(FolderScan scan, checkpoint::scan_folder(files, root));
  if (scan.entries.empty()) return base::not_found(root + ": " + checkpoint::describe(scan));
  return scan;
}

Result<SaveId> find_checkpoint(base::FileSystem& files, const std::string& root,
                               std::optional<uint64_t> step) {
  RETURN_IF_ERROR(check_root(files, root));
  CheckpointFolder folder(files, root);
  return step ? folder.at_step(*step) : folder.newest();
}

Result<std::vector<Entry>> entries_of_step(const FolderScan& scan, const std::string& root,
                                           uint64_t step) {
  std::vector<Entry> entries;
  for (const Entry& entry : scan.entries) {
    if (entry.id.step == step) entries.push_back(entry);
  }
  if (entries.empty()) {
    return base::not_found(root + " has no step " + std::to_string(step) + ": " +
                           checkpoint::describe(scan));
  }
  return entries;
}

const Entry* newest_committed(const FolderScan& scan) {
  for (size_t i = scan.entries.size(); i-- > 0;) {
    if (scan.entries[i].committed) return &scan.entries[i];
  }
  return nullptr;
}

int report_not_found(const Status& status) {
  // Of a newer version: what was given can not be used.
  if (status.code() == StatusCode::kUnimplemented) return report_wrong_input(status);
  return report_error(status);
}

}  // namespace perdure::apps
