#include "apps/ckpt_verify.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <set>

#include "apps/ckpt_find.h"
#include "apps/text_table.h"
#include "base/posix_clock.h"
#include "checkpoint/block_files.h"
#include "checkpoint/checkpoint_reader.h"

namespace perdure::apps {

using base::Result;
using base::Status;
using base::StatusCode;
using checkpoint::BadSource;
using checkpoint::FileRecord;
using checkpoint::FileSource;
using checkpoint::FolderScan;
using checkpoint::Manifest;
using checkpoint::SaveId;
using Entry = checkpoint::CheckpointFolder::Entry;

namespace {

constexpr base::Nanos kQuietFor = std::chrono::seconds(2);
constexpr base::Nanos kBetweenLines = std::chrono::milliseconds(200);

// On a terminal, and only when it takes long.
class ProgressLine {
 public:
  ProgressLine() : is_terminal_(::isatty(STDERR_FILENO) != 0), next_(clock_.now() + kQuietFor) {}

  void show(const std::string& what, uint64_t done, uint64_t total) {
    if (!is_terminal_ || total == 0 || clock_.now() < next_) return;
    next_ = clock_.now() + kBetweenLines;
    is_shown_ = true;
    std::fprintf(stderr, "\r\033[K%s: %3.0f %%, %s of %s", what.c_str(),
                 100.0 * static_cast<double>(done) / static_cast<double>(total),
                 human_size(done).c_str(), human_size(total).c_str());
    std::fflush(stderr);
  }

  void clear() {
    if (is_shown_) std::fprintf(stderr, "\r\033[K");
    is_shown_ = false;
  }

 private:
  const bool is_terminal_;
  base::PosixClock clock_;
  base::Nanos next_;
  bool is_shown_ = false;
};

// A folder of which is known which files are elsewhere, and which have a wrong size: of these one
// line is said, not one for each piece.
class KnownFolder final : public FileSource {
 public:
  KnownFolder(base::FileSystem& files, checkpoint::BlockFiles& blocks, const std::string& folder,
              const Manifest& manifest)
      : inner_(checkpoint::make_folder_source(blocks, folder)) {
    for (FileRecord record : manifest.files) {
      if (!record.nodes.empty()) {
        const auto info = files.stat(folder + "/" + record.name);
        if (!info.is_ok() && info.status().code() == StatusCode::kNotFound) {
          elsewhere_.insert(record.name);
          nodes_.insert(record.nodes.begin(), record.nodes.end());
          continue;
        }
        record.nodes.clear();
      }
      Status size = checkpoint::check_sizes(files, folder, {record});
      if (!size.is_ok()) wrong_.emplace(record.name, std::move(size));
    }
  }

  std::string name() const override { return inner_->name(); }
  bool has(const FileRecord& file) const override { return !is_elsewhere(file.name); }
  Status read(const FileRecord& file, std::span<const checkpoint::ReadRange> ranges) override {
    const auto wrong = wrong_.find(file.name);
    return wrong == wrong_.end() ? inner_->read(file, ranges) : wrong->second;
  }

  bool is_elsewhere(const std::string& name) const { return elsewhere_.contains(name); }
  size_t elsewhere_count() const { return elsewhere_.size(); }
  const std::set<uint32_t>& nodes() const { return nodes_; }
  const std::map<std::string, Status>& wrong() const { return wrong_; }

 private:
  const std::unique_ptr<FileSource> inner_;
  std::set<std::string> elsewhere_;
  std::set<uint32_t> nodes_;  // that have them
  std::map<std::string, Status> wrong_;
};

// Also of a checkpoint whose files are damaged.
Result<Manifest> read_manifest(base::FileSystem& files, const std::string& folder,
                               const Entry& entry) {
  const std::string path = folder + "/" + std::string(checkpoint::kManifestName);
  const auto bytes = base::read_file(files, path, checkpoint::kManifestBytesMax);
  if (!bytes.is_ok()) return entry.problem.is_ok() ? bytes.status() : entry.problem;
  ASSIGN_OR_RETURN(Manifest manifest, checkpoint::parse_manifest(*bytes, path));
  const SaveId told = {manifest.step, manifest.epoch, manifest.attempt};
  if (told == entry.id) return manifest;
  if (!entry.problem.is_ok()) return entry.problem;
  return base::data_loss(path + " is of " + checkpoint::folder_name(told) + " by now");
}

void say_bad(const std::string& what, const std::vector<std::string>& lines) {
  std::printf("%s: NOT GOOD, %s\n", what.c_str(), counted(lines.size(), "problem").c_str());
  for (const std::string& line : lines) std::printf("  %s\n", line.c_str());
}

std::string elsewhere_text(const KnownFolder& source) {
  std::string text = counted(source.elsewhere_count(), "file") + " not here but on node";
  for (const uint32_t node : source.nodes()) {
    text += (node == *source.nodes().begin() ? " " : ", ") + std::to_string(node);
  }
  return text + ": verify there";
}

class Verifier {
 public:
  Verifier(base::FileSystem& files, std::string root)
      : files_(files), folder_(files, std::move(root)), blocks_(checkpoint::make_block_files({})) {}

  // Gives whether it is good.
  bool verify(const Entry& entry) {
    const std::string what = checkpoint::to_text(entry.id);
    const std::string path = folder_.path(entry.id);
    const Result<Manifest> manifest = read_manifest(files_, path, entry);
    if (!manifest.is_ok()) {
      say_bad(what, {printable(manifest.status().message())});
      return false;
    }
    KnownFolder source(files_, *blocks_, path, *manifest);
    uint64_t total = 0;
    for (const FileRecord& file : manifest->files) {
      if (source.has(file) && !source.wrong().contains(file.name)) total += file.bytes;
    }
    checkpoint::LoadOptions options;
    options.on_progress = [&](uint64_t done) { progress_.show("verify " + what, done, total); };
    const std::vector<BadSource> bad = checkpoint::verify_files(*manifest, source, options);
    progress_.clear();
    return tell(what, *manifest, source, bad, total);
  }

 private:
  static bool tell(const std::string& what, const Manifest& manifest, const KnownFolder& source,
                   const std::vector<BadSource>& all, uint64_t bytes) {
    std::vector<std::string> lines;
    for (const BadSource& bad : all) {
      if (source.is_elsewhere(bad.file)) continue;
      lines.push_back(bad.file + ": " + printable(bad.why.message()));
    }
    const size_t here = manifest.files.size() - source.elsewhere_count();
    if (lines.empty() && here == 0 && source.elsewhere_count() > 0) {
      lines.push_back("nothing could be read: " + elsewhere_text(source));
    }
    if (!lines.empty()) {
      say_bad(what, lines);
      return false;
    }
    std::printf("%s: good, %s in %s%s\n", what.c_str(), human_size(bytes).c_str(),
                counted(here, "file").c_str(),
                source.elsewhere_count() > 0 ? ("; " + elsewhere_text(source)).c_str() : "");
    return true;
  }

  base::FileSystem& files_;
  checkpoint::CheckpointFolder folder_;
  const std::unique_ptr<checkpoint::BlockFiles> blocks_;
  ProgressLine progress_;
};

}  // namespace

Result<std::vector<Entry>> to_verify(const FolderScan& scan, const std::string& root,
                                     VerifyWhich which, uint64_t step) {
  std::vector<Entry> from = scan.entries;
  if (which == VerifyWhich::kStep) {
    ASSIGN_OR_RETURN(from, entries_of_step(scan, root, step));
  }
  const Entry* newest = newest_committed(scan);
  std::vector<Entry> chosen;
  for (const Entry& entry : from) {
    const bool is_old = newest != nullptr && entry.id < newest->id;
    if (which == VerifyWhich::kNewest && is_old) continue;
    if (entry.committed || !entry.problem.is_ok()) chosen.push_back(entry);
  }
  if (chosen.empty()) {
    return base::not_found(root + " has nothing to verify: " + checkpoint::describe(scan));
  }
  return chosen;
}

size_t verify_checkpoints(base::FileSystem& files, const std::string& root,
                          const std::vector<Entry>& entries) {
  Verifier verifier(files, root);
  size_t bad = 0;
  for (const Entry& entry : entries) {
    if (!verifier.verify(entry)) ++bad;
    std::fflush(stdout);
  }
  if (entries.size() > 1) {
    std::printf("%zu of %zu are good\n", entries.size() - bad, entries.size());
  }
  return bad;
}

}  // namespace perdure::apps
