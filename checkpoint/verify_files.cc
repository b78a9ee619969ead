#include <sstream>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/load_plan.h"
#include "checkpoint/piece_batch.h"

namespace perdure::checkpoint {
namespace {

using base::Status;
using base::StatusCode;

class Verification {
 public:
  Verification(const Manifest& manifest, FileSource& source, const LoadOptions& options)
      : manifest_(manifest), source_(source), options_(options) {}

  std::vector<BadSource> run() {
    const Status status = check_manifest(manifest_);
    if (!status.is_ok()) {
      tell(kManifestName, status);
      return std::move(bad_);
    }
    // Files in which no chunk has bytes are not in the plan; their headers are checked all the
    // same.
    std::vector<PlannedFile> files(manifest_.files.size());
    for (size_t f = 0; f < files.size(); ++f) files[f].file = static_cast<uint32_t>(f);
    for (PlannedFile& file : plan_verify(manifest_, options_).files) {
      files[file.file] = std::move(file);
    }
    for (const PlannedFile& file : files) {
      const FileRecord& record = manifest_.files[file.file];
      if (!source_.has(record)) {
        tell(record.name, base::not_found(source_.name() + " does not have " + record.name));
        continue;
      }
      // Of a file that can not be read, nothing more is asked.
      Status read = verify_header(file);
      if (read.is_ok()) read = verify_pieces(file);
      if (!read.is_ok()) tell(record.name, read);
      if (read.code() == StatusCode::kCancelled) break;
    }
    return std::move(bad_);
  }

 private:
  void tell(std::string_view file, Status why) {
    bad_.push_back({.source = source_.name(), .file = std::string(file), .why = std::move(why)});
  }

  Status verify_header(const PlannedFile& file) {
    const FileRecord& record = manifest_.files[file.file];
    RETURN_IF_ERROR(check_leave(options_));
    const uint64_t bytes = file.pieces.empty() ? record.bytes : file.pieces.front().offset;
    const ReadRange range = {.offset = 0, .to = scratch_.take(bytes)};
    if (bytes > 0) RETURN_IF_ERROR(source_.read(record, std::span(&range, 1)));
    std::vector<uint64_t> hashes;
    for (const PlannedChunk& planned : file.chunks) {
      const ChunkRecord& chunk = manifest_.tensors[planned.tensor].chunks[planned.chunk];
      hashes.insert(hashes.end(), chunk.piece_hashes.begin(), chunk.piece_hashes.end());
    }
    if (const uint64_t hash = hash_file(range.to, hashes); hash != record.hash) {
      std::ostringstream text;
      text << "the header of " << record.name << " (bytes 0 to " << bytes
           << ") is not what was written: with it the file's hash is " << std::hex << hash
           << ", the manifest says " << record.hash;
      tell(record.name, base::data_loss(text.str()));
    }
    done(bytes);
    return Status::ok();
  }

  Status verify_pieces(const PlannedFile& file) {
    const FileRecord& record = manifest_.files[file.file];
    for (const Batch& batch : batches_of(file, options_.scratch_bytes_max)) {
      RETURN_IF_ERROR(check_leave(options_));
      const PlacedBatch placed = place(file, batch, scratch_);
      RETURN_IF_ERROR(source_.read(record, placed.ranges));
      for (const PlacedPiece& piece : placed.pieces) {
        Status wrong = check_piece(manifest_, file, piece);
        if (!wrong.is_ok()) tell(record.name, std::move(wrong));
      }
      done(batch.bytes);
    }
    return Status::ok();
  }

  void done(uint64_t bytes) {
    bytes_done_ += bytes;
    if (options_.on_progress) options_.on_progress(bytes_done_);
  }

  const Manifest& manifest_;
  FileSource& source_;
  const LoadOptions& options_;
  Scratch scratch_;
  uint64_t bytes_done_ = 0;
  std::vector<BadSource> bad_;
};

}  // namespace

std::vector<BadSource> verify_files(const Manifest& manifest, FileSource& source,
                                    const LoadOptions& options) {
  return Verification(manifest, source, options).run();
}

}  // namespace perdure::checkpoint
