#include "checkpoint/folder_scan.h"

#include <algorithm>

#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::FileInfo;
using base::FileKind;
using base::Result;
using base::Status;
using base::StatusCode;
using Entry = CheckpointFolder::Entry;

constexpr size_t kNamedMax = 12;

// Tells something about this one checkpoint only.
bool is_of_one(StatusCode code) {
  return code == StatusCode::kDataLoss || code == StatusCode::kUnimplemented ||
         code == StatusCode::kFailedPrecondition || code == StatusCode::kInvalidArgument;
}

Result<Entry> inspect(base::FileSystem& files, const std::string& folder, const SaveId& id) {
  Entry entry = {.id = id};
  const Result<Manifest> manifest = read_committed(files, folder, id);
  if (manifest.is_ok()) {
    entry.committed = true;
    for (const FileRecord& file : manifest->files) entry.bytes += file.bytes;
  } else if (is_of_one(manifest.status().code())) {
    entry.problem = manifest.status();
  } else if (manifest.status().code() != StatusCode::kNotFound) {
    return manifest.status();
  }
  return entry;
}

// "1, 2, 3 and 9 more"; of steps the last ones, which are those that a person looks for.
template <typename Range, typename ToText>
std::string some_of(const Range& values, const ToText& to_text) {
  const size_t skipped = values.size() - std::min(values.size(), kNamedMax);
  std::string text = skipped > 0 ? std::to_string(skipped) + " more, " : "";
  for (size_t i = skipped; i < values.size(); ++i) {
    text += (i == skipped ? "" : ", ") + to_text(values[i]);
  }
  return text;
}

std::string counted(size_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

}  // namespace

base::Status check_sizes(base::FileSystem& files, const std::string& folder,
                         const std::vector<FileRecord>& records) {
  for (const FileRecord& record : records) {
    if (!is_plain_file_name(record.name)) {
      return base::data_loss(folder + ": the file name " + in_quotes(record.name) +
                             " is no plain name");
    }
    if (!record.nodes.empty()) continue;
    const std::string path = folder + "/" + record.name;
    const Result<FileInfo> info = files.stat(path);
    if (!info.is_ok() && info.status().code() != StatusCode::kNotFound) return info.status();
    if (!info.is_ok() || info->kind != FileKind::kFile) {
      return base::data_loss(path + " is missing: it should have " + std::to_string(record.bytes) +
                             " bytes");
    }
    if (info->size_bytes != record.bytes) {
      return base::data_loss(path + " has " + std::to_string(info->size_bytes) +
                             " bytes and should have " + std::to_string(record.bytes));
    }
  }
  return Status::ok();
}

base::Result<Manifest> read_committed(base::FileSystem& files, const std::string& folder,
                                      const SaveId& id) {
  const std::string path = folder + "/" + std::string(kManifestName);
  ASSIGN_OR_RETURN(const FileInfo info, files.stat(path));
  if (info.kind != FileKind::kFile) return base::invalid_argument(path + " is a directory");
  if (info.size_bytes > kManifestBytesMax) {
    return base::data_loss(path + " has " + std::to_string(info.size_bytes) + " bytes, at most " +
                           std::to_string(kManifestBytesMax) + " are allowed");
  }
  ASSIGN_OR_RETURN(const std::vector<std::byte> bytes,
                   base::read_file(files, path, kManifestBytesMax));
  ASSIGN_OR_RETURN(Manifest manifest, parse_manifest(bytes, path));
  const SaveId told = {.step = manifest.step, .epoch = manifest.epoch, .attempt = manifest.attempt};
  if (told != id) {
    return base::data_loss(path + " is of " + folder_name(told) +
                           ": was the folder renamed? Give it that name again");
  }
  RETURN_IF_ERROR(check_sizes(files, folder, manifest.files));
  return manifest;
}

base::Result<FolderScan> scan_folder(base::FileSystem& files, const std::string& root) {
  FolderScan scan;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.list(root));
  for (const std::string& name : names) {
    const std::optional<SaveId> id = parse_folder_name(name);
    if (!id) {
      scan.names_of_others.push_back(name);
      continue;
    }
    const std::string folder = root + "/" + name;
    const Result<FileInfo> info = files.stat(folder);
    if (!info.is_ok()) {
      if (info.status().code() == StatusCode::kNotFound) continue;  // removed since
      return info.status();
    }
    if (info->kind != FileKind::kDirectory) {
      scan.names_of_others.push_back(name);
      continue;
    }
    ASSIGN_OR_RETURN(Entry entry, inspect(files, folder, *id));
    scan.entries.push_back(std::move(entry));
  }
  std::sort(scan.entries.begin(), scan.entries.end(),
            [](const Entry& a, const Entry& b) { return a.id < b.id; });
  return scan;
}

std::string to_text(const SaveId& id) {
  return "step " + std::to_string(id.step) + " of epoch " + std::to_string(id.epoch);
}

std::string describe(const FolderScan& scan) {
  std::vector<uint64_t> steps;
  std::vector<const Entry*> unfinished;
  std::vector<const Entry*> bad;
  for (const Entry& entry : scan.entries) {
    if (!entry.problem.is_ok()) {
      bad.push_back(&entry);
    } else if (!entry.committed) {
      unfinished.push_back(&entry);
    } else if (steps.empty() || steps.back() != entry.id.step) {
      steps.push_back(entry.id.step);
    }
  }
  std::string text = steps.empty()
                         ? "there is no committed checkpoint"
                         : (steps.size() == 1 ? "there is step " : "there are steps ") +
                               some_of(steps, [](uint64_t step) { return std::to_string(step); });
  if (!unfinished.empty()) {
    text += "; " + counted(unfinished.size(), "unfinished save", "unfinished saves") +
            " (never committed, can not be loaded): " +
            some_of(unfinished, [](const Entry* entry) { return to_text(entry->id); });
  }
  if (!bad.empty()) {
    text += "; " + std::to_string(bad.size()) +
            " that can not be read: " + some_of(bad, [](const Entry* entry) {
              return to_text(entry->id) + " (" + entry->problem.message() + ")";
            });
  }
  if (scan.entries.empty() && !scan.names_of_others.empty()) {
    text += "; only names of others (" +
            some_of(scan.names_of_others, [](const auto& name) { return in_quotes(name); }) +
            "): is it the right directory?";
  }
  if (scan.entries.empty() && scan.names_of_others.empty()) text += ": the directory is empty";
  return text;
}

}  // namespace perdure::checkpoint
