#include "apps/ckpt_remove.h"

#include <cstdio>

#include "apps/ckpt_find.h"
#include "apps/text_table.h"

namespace perdure::apps {

using base::Status;
using base::StatusCode;
using checkpoint::CheckpointFolder;
using checkpoint::FolderScan;
using Entry = CheckpointFolder::Entry;

namespace {

// Why `entry` is not simply removed; "" when it is.
std::string objection(const Entry& entry, const Entry* newest) {
  if (newest != nullptr && entry.id == newest->id) {
    return "is the newest committed checkpoint, from which a job would go on";
  }
  if (!entry.committed && entry.problem.is_ok()) {
    return "is an unfinished save: a running job may be writing it";
  }
  if (!entry.problem.is_ok() && entry.problem.code() != StatusCode::kDataLoss) {
    return "can not be read but may be good (" + entry.problem.message() + ")";
  }
  return "";
}

std::string kind_of(const Entry& entry) {
  if (entry.committed) return human_size(entry.bytes);
  return entry.problem.is_ok() ? "unfinished" : "damaged or not readable";
}

}  // namespace

Status remove_step(base::FileSystem& files, const RemoveArguments& arguments) {
  ASSIGN_OR_RETURN(const FolderScan scan, scan_checkpoints(files, arguments.root));
  ASSIGN_OR_RETURN(const std::vector<Entry> entries,
                   entries_of_step(scan, arguments.root, arguments.step));
  const Entry* newest = newest_committed(scan);
  for (const Entry& entry : entries) {
    const std::string why = objection(entry, newest);
    if (why.empty() || arguments.force) continue;
    return base::failed_precondition(checkpoint::to_text(entry.id) + " " + why +
                                     "; nothing was removed, --force removes it all the same");
  }
  CheckpointFolder folder(files, arguments.root);
  for (const Entry& entry : entries) {
    const std::string path = folder.path(entry.id);
    const std::string what = checkpoint::to_text(entry.id);
    const Status removed = folder.remove(entry.id);
    if (!removed.is_ok()) return removed.annotate(what + " is not, or only in part, removed");
    const bool stays = files.stat(path).is_ok();
    std::printf("removed %s (%s): %s%s\n", what.c_str(), kind_of(entry).c_str(), path.c_str(),
                stays ? " stays, it has files of others" : "");
  }
  return Status::ok();
}

}  // namespace perdure::apps
