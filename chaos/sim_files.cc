#include "chaos/sim_files.h"

#include <algorithm>
#include <utility>

#include "chaos/sim_node.h"

namespace perdure::chaos {

using base::ByteSpan;
using base::File;
using base::FileInfo;
using base::FileKind;
using base::MutableByteSpan;
using base::OpenMode;
using base::Result;
using base::Status;

namespace {

bool is_change(FileAction action) {
  switch (action) {
    case FileAction::kWrite:
    case FileAction::kSync:
    case FileAction::kTruncate:
    case FileAction::kRename:
    case FileAction::kRemove:
    case FileAction::kMakeDirs:
    case FileAction::kSyncDir:
      return true;
    case FileAction::kOpen:
    case FileAction::kRead:
    case FileAction::kList:
      return false;
  }
  return false;
}

Status dead_disk(std::string_view path) {
  return base::unavailable(std::string(path) + ": this simulated host is dead");
}

// "/a//b/./c" -> {"a", "b", "c"}; relative paths start at the root, too.
std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t first = 0; first < path.size();) {
    const size_t end = std::min(path.find('/', first), path.size());
    const std::string_view part = path.substr(first, end - first);
    if (!part.empty() && part != ".") parts.push_back(part);
    first = end + 1;
  }
  return parts;
}

}  // namespace

// An open file; stale once its disk was disconnected.
class SimFile final : public File {
 public:
  SimFile(SimFiles& files, std::shared_ptr<SimFiles::Node> node, std::string_view path,
          OpenMode mode)
      : files_(files),
        connection_(files.connection_),
        node_(std::move(node)),
        path_(path),
        mode_(mode) {}

  Result<size_t> pread(uint64_t offset, MutableByteSpan buffer) override {
    RETURN_IF_ERROR(begin(FileAction::kRead));
    const uint64_t first = std::min<uint64_t>(offset, node_->data.size());
    const size_t size_bytes = std::min<size_t>(buffer.size(), node_->data.size() - first);
    std::copy_n(node_->data.begin() + static_cast<ptrdiff_t>(first), size_bytes, buffer.begin());
    return size_bytes;
  }

  Status pwrite(uint64_t offset, ByteSpan bytes) override {
    RETURN_IF_ERROR(begin_write(FileAction::kWrite));
    return files_.write(*node_, mode_ == OpenMode::kAppend ? node_->data.size() : offset, bytes)
        .annotate(path_);
  }

  Status append(ByteSpan bytes) override {
    RETURN_IF_ERROR(begin_write(FileAction::kWrite));
    return files_.write(*node_, node_->data.size(), bytes).annotate(path_);
  }

  Status sync() override {
    RETURN_IF_ERROR(begin(FileAction::kSync));
    files_.sync_contents(*node_);
    return Status::ok();
  }

  Result<uint64_t> size() const override {
    RETURN_IF_ERROR(check_usable());
    return node_->data.size();
  }

  Status truncate(uint64_t size_bytes) override {
    RETURN_IF_ERROR(begin_write(FileAction::kTruncate));
    return files_.resize(*node_, size_bytes).annotate(path_);
  }

  Status close() override {
    is_closed_ = true;
    return Status::ok();
  }

 private:
  Status check_usable() const {
    if (is_closed_) return base::failed_precondition(path_ + ": file is closed");
    if (files_.connection_ != connection_ || !files_.is_connected_) return dead_disk(path_);
    return Status::ok();
  }

  Status begin(FileAction action) {
    RETURN_IF_ERROR(check_usable());
    return files_.begin(action, path_);
  }

  Status begin_write(FileAction action) {
    if (mode_ == OpenMode::kRead) {
      return base::failed_precondition(path_ + ": file is open for reading");
    }
    return begin(action);
  }

  SimFiles& files_;
  const uint64_t connection_;
  const std::shared_ptr<SimFiles::Node> node_;
  const std::string path_;
  const OpenMode mode_;
  bool is_closed_ = false;
};

SimFiles::SimFiles(const SimDiskOptions& options, const base::SeededRandom& random)
    : options_(options), random_(random), root_(std::make_shared<Node>(FileKind::kDirectory)) {
  CHECK_GT(options_.sector_bytes, 0u);
}

SimFiles::~SimFiles() = default;

// Every call passes here: connection, planned end of the process, planned faults.
Status SimFiles::begin(FileAction action, std::string_view path) {
  if (!is_connected_) return dead_disk(path);
  if (is_change(action)) {
    if (actions_left_ == 0) {
      disconnect();
      return dead_disk(path);
    }
    --actions_left_;
    ++change_count_;
  }
  for (Fault& fault : faults_) {
    if (fault.action != action || path.find(fault.path_part) == std::string_view::npos) continue;
    if (fault.skip > 0) {
      --fault.skip;
    } else if (fault.count > 0) {
      --fault.count;
      return fault.error.annotate(path);
    }
  }
  return Status::ok();
}

SimFiles::NodePtr SimFiles::find(std::string_view path) const {
  NodePtr node = root_;
  for (const std::string_view part : split_path(path)) {
    const auto found = node->children.find(std::string(part));
    if (found == node->children.end()) return nullptr;
    node = found->second;
  }
  return node;
}

// The directory in which a name is, or would be.
Result<SimFiles::Place> SimFiles::find_place(std::string_view path) const {
  std::vector<std::string_view> parts = split_path(path);
  if (parts.empty()) return base::invalid_argument("'" + std::string(path) + "' is the root");
  NodePtr node = root_;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (node->kind != FileKind::kDirectory) break;
    const auto found = node->children.find(std::string(parts[i]));
    if (found == node->children.end()) {
      return base::not_found(std::string(path) + ": no directory '" + std::string(parts[i]) + "'");
    }
    node = found->second;
  }
  if (node->kind != FileKind::kDirectory) {
    return base::invalid_argument(std::string(path) + ": a part of it is not a directory");
  }
  return Place{node, std::string(parts.back())};
}

Result<std::unique_ptr<File>> SimFiles::open(std::string_view path, OpenMode mode) {
  RETURN_IF_ERROR(begin(FileAction::kOpen, path));
  ASSIGN_OR_RETURN(const Place place, find_place(path));
  const auto found = place.directory->children.find(place.name);
  const bool exists = found != place.directory->children.end();
  NodePtr node = exists ? found->second : nullptr;
  if (exists && node->kind == FileKind::kDirectory) {
    return base::invalid_argument(std::string(path) + " is a directory");
  }
  if (exists && mode == OpenMode::kCreateNew) {
    return base::already_exists(std::string(path) + " exists");
  }
  if (!exists) {
    if (mode == OpenMode::kRead || mode == OpenMode::kReadWrite) {
      return base::not_found(std::string(path) + " does not exist");
    }
    node = std::make_shared<Node>(FileKind::kFile);
    place.directory->children.emplace(place.name, node);
  }
  if (mode == OpenMode::kTruncate) RETURN_IF_ERROR(resize(*node, 0));
  return std::unique_ptr<File>(std::make_unique<SimFile>(*this, std::move(node), path, mode));
}

Result<FileInfo> SimFiles::stat(std::string_view path) {
  RETURN_IF_ERROR(begin(FileAction::kList, path));
  const NodePtr node = find(path);
  if (node == nullptr) return base::not_found(std::string(path) + " does not exist");
  return FileInfo{.kind = node->kind, .size_bytes = node->data.size()};
}

Status SimFiles::rename(const base::RenamePaths& paths) {
  RETURN_IF_ERROR(begin(FileAction::kRename, paths.from));
  ASSIGN_OR_RETURN(const Place from, find_place(paths.from));
  ASSIGN_OR_RETURN(const Place to, find_place(paths.to));
  const auto source = from.directory->children.find(from.name);
  if (source == from.directory->children.end()) {
    return base::not_found(std::string(paths.from) + " does not exist");
  }
  const NodePtr moved = source->second;
  const auto target = to.directory->children.find(to.name);
  if (target != to.directory->children.end()) {
    const Node& old = *target->second;
    if (&old == moved.get()) return Status::ok();
    if (old.kind != moved->kind) {
      return base::invalid_argument(std::string(paths.to) + ": a file and a directory");
    }
    if (!old.children.empty()) {
      return base::already_exists(std::string(paths.to) + " is a directory with contents");
    }
    unlink(*target->second);
  }
  from.directory->children.erase(source);
  to.directory->children[to.name] = moved;
  return Status::ok();
}

Status SimFiles::remove(std::string_view path) {
  RETURN_IF_ERROR(begin(FileAction::kRemove, path));
  ASSIGN_OR_RETURN(const Place place, find_place(path));
  const auto found = place.directory->children.find(place.name);
  if (found == place.directory->children.end()) {
    return base::not_found(std::string(path) + " does not exist");
  }
  if (!found->second->children.empty()) {
    return base::already_exists(std::string(path) + " is a directory with contents");
  }
  unlink(*found->second);
  place.directory->children.erase(found);
  return Status::ok();
}

Status SimFiles::make_dirs(std::string_view path) {
  RETURN_IF_ERROR(begin(FileAction::kMakeDirs, path));
  NodePtr node = root_;
  for (const std::string_view part : split_path(path)) {
    NodePtr& child = node->children[std::string(part)];
    if (child == nullptr) child = std::make_shared<Node>(FileKind::kDirectory);
    if (child->kind != FileKind::kDirectory) {
      return base::invalid_argument(std::string(path) + ": '" + std::string(part) + "' is a file");
    }
    node = child;
  }
  return Status::ok();
}

Result<std::vector<std::string>> SimFiles::list(std::string_view path) {
  RETURN_IF_ERROR(begin(FileAction::kList, path));
  const NodePtr node = find(path);
  if (node == nullptr) return base::not_found(std::string(path) + " does not exist");
  if (node->kind != FileKind::kDirectory) {
    return base::invalid_argument(std::string(path) + " is a file");
  }
  std::vector<std::string> names;
  for (const auto& [name, child] : node->children) names.push_back(name);
  return names;
}

Status SimFiles::sync_dir(std::string_view path) {
  RETURN_IF_ERROR(begin(FileAction::kSyncDir, path));
  const NodePtr node = find(path);
  if (node == nullptr) return base::not_found(std::string(path) + " does not exist");
  if (node->kind != FileKind::kDirectory) {
    return base::invalid_argument(std::string(path) + " is a file");
  }
  node->durable_children = node->children;
  return Status::ok();
}

void SimFiles::add_fault(Fault fault) {
  CHECK(!fault.error.is_ok());
  faults_.push_back(std::move(fault));
}

void SimFiles::disconnect() { is_connected_ = false; }

void SimFiles::reconnect() {
  is_connected_ = true;
  actions_left_ = ~uint64_t{0};
  ++connection_;
}

}  // namespace perdure::chaos
