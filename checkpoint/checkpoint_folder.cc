#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "checkpoint/folder_scan.h"

namespace perdure::checkpoint {
namespace {

using base::FileInfo;
using base::FileKind;
using base::FileSystem;
using base::Result;
using base::Status;
using base::StatusCode;
using Entry = CheckpointFolder::Entry;

constexpr std::string_view kTemporary = "MANIFEST.tmp";
constexpr size_t kStepDigits = 12;
constexpr size_t kAttemptDigits = 16;

bool is_not_found(const Status& status) { return status.code() == StatusCode::kNotFound; }

// A directory of somebody else need not let us sync it: then no name in it is ours. (Nor does a
// file that has a name like a save.)
Status sync_if_we_may(FileSystem& files, const std::string& directory) {
  const Status status = files.sync_dir(directory);
  const bool is_of_others = status.code() == StatusCode::kFailedPrecondition ||
                            status.code() == StatusCode::kInvalidArgument;
  return is_of_others ? Status::ok() : status;
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path.empty() ? "." : path;
}

std::string digits(uint64_t value, int base, size_t width) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value, base);
  CHECK(error == std::errc());
  const std::string number(text, end);
  return std::string(width - std::min(width, number.size()), '0') + number;
}

// A name that a save writes, or would have renamed.
bool is_ours(std::string_view name) {
  constexpr std::string_view kEnding = ".tmp";
  if (name == kTemporary) return true;
  if (name.ends_with(kEnding)) name.remove_suffix(kEnding.size());
  return is_plain_file_name(name);
}

// Gives how many names it has removed. The manifest goes first, for good, so that no moment shows a
// committed checkpoint that lacks files. In the folder all plain files are ours; what else somebody
// has put there stays, and the folder with it.
Result<size_t> remove_save(FileSystem& files, const std::string& root, const std::string& folder) {
  size_t removed = 0;
  const auto remove = [&](const std::string& path) {
    const Status status = files.remove(path);
    if (status.is_ok()) ++removed;
    return is_not_found(status) ? Status::ok() : status;
  };
  RETURN_IF_ERROR(remove(folder + "/" + std::string(kManifestName)));
  // Also when there was none: whoever removed it may have been killed before that was durable.
  RETURN_IF_ERROR(files.sync_dir(folder));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(folder));
  bool has_names_of_others = false;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    const Result<FileInfo> info = files.stat(path);
    if (is_not_found(info.status())) continue;
    RETURN_IF_ERROR(info.status());
    if (info->kind == FileKind::kFile && is_ours(name)) {
      RETURN_IF_ERROR(remove(path));
    } else {
      has_names_of_others = true;
    }
  }
  if (has_names_of_others) return removed;
  const Status status = remove(folder);
  // Something is in it that was not listed, or is not to be seen: a link that leads nowhere.
  if (status.code() == StatusCode::kAlreadyExists) return removed;
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(files.sync_dir(root));
  return removed;
}

// The newest of each step; the others of a step are superseded.
std::map<uint64_t, SaveId> newest_of_steps(const std::vector<Entry>& entries) {
  std::map<uint64_t, SaveId> newest;
  for (const Entry& entry : entries) {
    if (entry.committed) newest[entry.id.step] = entry.id;
  }
  return newest;
}

// What clean() removes: leftovers first, they are worth nothing, then from the oldest on.
std::vector<SaveId> choose(const std::vector<Entry>& entries, const RetentionRule& rule,
                           uint64_t live_epoch, const std::vector<SaveId>& in_use) {
  const std::map<uint64_t, SaveId> newest = newest_of_steps(entries);
  std::vector<uint64_t> steps;
  for (const auto& [step, id] : newest) steps.push_back(step);
  const std::vector<uint64_t> old = steps_to_remove(steps, rule);

  std::vector<SaveId> leftovers;
  std::vector<SaveId> committed;
  for (const Entry& entry : entries) {
    if (std::find(in_use.begin(), in_use.end(), entry.id) != in_use.end()) continue;
    if (entry.committed) {
      const bool is_superseded = newest.at(entry.id.step) != entry.id;
      if (is_superseded || std::binary_search(old.begin(), old.end(), entry.id.step)) {
        committed.push_back(entry.id);
      }
    } else if (entry.problem.is_ok() && entry.id.epoch < live_epoch) {
      leftovers.push_back(entry.id);
    }
  }
  leftovers.insert(leftovers.end(), committed.begin(), committed.end());
  return leftovers;
}

}  // namespace

std::string folder_name(const SaveId& id) {
  return "step-" + digits(id.step, 10, kStepDigits) + ".e" + digits(id.epoch, 10, 1) + "." +
         digits(id.attempt, 16, kAttemptDigits);
}

std::optional<SaveId> parse_folder_name(std::string_view name) {
  SaveId id;
  const char* at = name.data();
  const char* const end = at + name.size();
  const auto take = [&](std::string_view mark, uint64_t& value, int base) {
    if (!std::string_view(at, static_cast<size_t>(end - at)).starts_with(mark)) return false;
    const auto [after, error] = std::from_chars(at + mark.size(), end, value, base);
    at = after;
    return error == std::errc();
  };
  if (!take("step-", id.step, 10) || !take(".e", id.epoch, 10) || !take(".", id.attempt, 16)) {
    return std::nullopt;
  }
  // One form only: no other zeros, no capitals, nothing behind.
  if (folder_name(id) != name) return std::nullopt;
  return id;
}

CheckpointFolder::CheckpointFolder(base::FileSystem& files, std::string root)
    : files_(files), root_(without_last_slashes(std::move(root))) {}

std::string CheckpointFolder::path(const SaveId& id) const { return root_ + "/" + folder_name(id); }

base::Status CheckpointFolder::open() {
  RETURN_IF_ERROR(files_.make_dirs(root_));
  // Also when all was there before: whoever made it may have been killed before it was durable, and
  // what is seen from now on is relied on.
  for (std::string below = root_; below != "." && below != "/";) {
    below = base::parent_path(below);
    RETURN_IF_ERROR(sync_if_we_may(files_, below));
  }
  RETURN_IF_ERROR(sync_if_we_may(files_, root_));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files_.list(root_));
  for (const std::string& name : names) {
    if (!parse_folder_name(name)) continue;
    const Status status = sync_if_we_may(files_, root_ + "/" + name);
    if (!is_not_found(status)) RETURN_IF_ERROR(status);
  }
  return Status::ok();
}

base::Result<std::string> CheckpointFolder::begin(const SaveId& id) {
  const Result<FileInfo> root = files_.stat(root_);
  if (!root.is_ok() && is_not_found(root.status())) {
    return base::not_found(root_ + " is not there any more: was it removed or unmounted?");
  }
  RETURN_IF_ERROR(root.status());
  std::string folder = path(id);
  const Result<FileInfo> info = files_.stat(folder);
  if (info.is_ok()) return base::already_exists(folder + " is there: an attempt begins only once");
  if (!is_not_found(info.status())) return info.status();
  RETURN_IF_ERROR(files_.make_dirs(folder));
  RETURN_IF_ERROR(files_.sync_dir(root_));
  return folder;
}

base::Status CheckpointFolder::seal(const SaveId& id, const std::vector<FileRecord>& files) {
  const std::string folder = path(id);
  RETURN_IF_ERROR(check_sizes(files_, folder, files));
  return files_.sync_dir(folder);
}

base::Status CheckpointFolder::publish(const SaveId& id, const Manifest& manifest,
                                       uint64_t fence_epoch) {
  const std::string folder = path(id);
  if (id.epoch < fence_epoch) {
    return base::aborted(folder + ": epoch " + std::to_string(id.epoch) + " has ended, epoch " +
                         std::to_string(fence_epoch) +
                         " is the oldest that may commit: abandon this save");
  }
  const SaveId told = {.step = manifest.step, .epoch = manifest.epoch, .attempt = manifest.attempt};
  if (told != id) {
    return base::invalid_argument(folder + ": the manifest is of " + folder_name(told));
  }
  // What could not be read back is not written.
  const std::vector<std::byte> bytes = encode_manifest(manifest);
  const std::string final_path = folder + "/" + std::string(kManifestName);
  RETURN_IF_ERROR(parse_manifest(bytes, final_path).status());
  RETURN_IF_ERROR(check_sizes(files_, folder, manifest.files));
  const Result<FileInfo> info = files_.stat(final_path);
  if (info.is_ok()) return base::already_exists(final_path + " is there: published already");
  if (!is_not_found(info.status())) return info.status();
  return base::replace_file(files_, final_path, bytes);
}

base::Status CheckpointFolder::abandon(const SaveId& id) {
  const Status status = remove(id);
  return is_not_found(status) ? Status::ok() : status;
}

base::Result<std::vector<CheckpointFolder::Entry>> CheckpointFolder::list() {
  ASSIGN_OR_RETURN(FolderScan scan, scan_folder(files_, root_));
  return std::move(scan.entries);
}

base::Result<Manifest> CheckpointFolder::read(const SaveId& id) {
  Result<Manifest> manifest = read_committed(files_, path(id), id);
  if (manifest.is_ok() || !is_not_found(manifest.status())) return manifest;
  ASSIGN_OR_RETURN(const FolderScan scan, scan_folder(files_, root_));
  return base::not_found(path(id) + " is no committed checkpoint: " + describe(scan));
}

base::Result<SaveId> CheckpointFolder::newest() {
  ASSIGN_OR_RETURN(const FolderScan scan, scan_folder(files_, root_));
  for (size_t i = scan.entries.size(); i-- > 0;) {
    const Entry& entry = scan.entries[i];
    if (entry.committed) return entry.id;
    // A damaged one is passed over. One that we only can not read may be good, and newer.
    if (!entry.problem.is_ok() && entry.problem.code() != StatusCode::kDataLoss) {
      return entry.problem.annotate("the newest checkpoint can not be told");
    }
  }
  return base::not_found(root_ + ": " + describe(scan));
}

base::Result<SaveId> CheckpointFolder::at_step(uint64_t step) {
  ASSIGN_OR_RETURN(const FolderScan scan, scan_folder(files_, root_));
  for (size_t i = scan.entries.size(); i-- > 0;) {
    const Entry& entry = scan.entries[i];
    if (entry.id.step != step) continue;
    if (entry.committed) return entry.id;
    if (!entry.problem.is_ok() && entry.problem.code() != StatusCode::kDataLoss) {
      return entry.problem.annotate("step " + std::to_string(step));
    }
  }
  return base::not_found(root_ + " has no committed step " + std::to_string(step) + ": " +
                         describe(scan));
}

base::Status CheckpointFolder::remove(const SaveId& id) {
  const std::string folder = path(id);
  ASSIGN_OR_RETURN(const FileInfo info, files_.stat(folder));
  if (info.kind != FileKind::kDirectory) {
    return base::invalid_argument(folder + " is a file, not a checkpoint");
  }
  return remove_save(files_, root_, folder).status();
}

base::Result<std::vector<SaveId>> CheckpointFolder::clean(const RetentionRule& rule,
                                                          uint64_t live_epoch,
                                                          const std::vector<SaveId>& in_use) {
  ASSIGN_OR_RETURN(const FolderScan scan, scan_folder(files_, root_));
  const std::vector<SaveId> chosen = choose(scan.entries, rule, live_epoch, in_use);
  if (chosen.empty()) return chosen;

  // Whoever committed those that stay may have been killed before the name of the manifest was
  // durable. Nothing older is removed on the word of one that a power loss would take back.
  for (const Entry& entry : scan.entries) {
    const bool stays = std::find(chosen.begin(), chosen.end(), entry.id) == chosen.end();
    if (entry.committed && stays) RETURN_IF_ERROR(files_.sync_dir(path(entry.id)));
  }

  std::vector<SaveId> removed;
  Status first_error;
  for (const SaveId& id : chosen) {
    const Result<size_t> names = remove_save(files_, root_, path(id));
    if (names.is_ok() && *names > 0) removed.push_back(id);
    if (!names.is_ok() && !is_not_found(names.status()) && first_error.is_ok()) {
      first_error = names.status();
    }
  }
  if (!first_error.is_ok()) return first_error;
  return removed;
}

}  // namespace perdure::checkpoint
