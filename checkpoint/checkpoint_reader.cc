#include "checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "checkpoint/load_plan.h"
#include "checkpoint/piece_batch.h"

namespace perdure::checkpoint {
namespace {

using base::ByteSpan;
using base::MutableByteSpan;
using base::Status;
using base::StatusCode;

struct Pending {
  PlacedPiece placed;
  std::vector<std::string> said;  // by the sources that had no good bytes
};

// Only the pieces that are still needed.
std::vector<ReadRange> ranges_of(const std::vector<Pending>& pieces) {
  std::vector<ReadRange> ranges;
  for (const Pending& pending : pieces) {
    ranges.push_back({.offset = pending.placed.piece->offset, .to = pending.placed.at});
  }
  return ranges;
}

uint64_t bytes_of(std::span<const ReadRange> ranges) {
  uint64_t bytes = 0;
  for (const ReadRange& range : ranges) bytes += range.to.size();
  return bytes;
}

// Copies what others want of the pieces of one chunk. The pieces of a chunk come one after the
// other, so that its runs are found once.
class CopyOut {
 public:
  CopyOut(const Manifest& manifest, std::span<const Wanted> wanted)
      : manifest_(manifest), wanted_(wanted) {}

  // Gives the count of bytes.
  uint64_t copy(const PlannedFile& file, const PlannedPiece& piece, ByteSpan bytes) {
    const PlannedChunk& planned = file.chunks[piece.chunk];
    const TensorRecord& tensor = manifest_.tensors[planned.tensor];
    if (current_ != &planned) find_runs(planned, tensor);
    const uint64_t bits = size_bits(tensor.type);
    const uint64_t begin = piece.piece * kPieceBytes;
    const uint64_t end = begin + piece.bytes;
    uint64_t copied = 0;
    for (size_t c = 0; c < planned.copies.size(); ++c) {
      const MutableByteSpan to = wanted_[planned.copies[c].wanted].to;
      const std::vector<Run>& runs = runs_[c];
      auto run = std::partition_point(runs.begin(), runs.end(), [&](const Run& r) {
        return (r.from + r.count) * bits / 8 <= begin;
      });
      for (; run != runs.end() && run->from * bits / 8 < end; ++run) {
        const uint64_t run_begin = run->from * bits / 8;
        const uint64_t first = std::max(run_begin, begin);
        const uint64_t last = std::min(run_begin + run->count * bits / 8, end);
        const MutableByteSpan target =
            to.subspan(run->to * bits / 8 + (first - run_begin), last - first);
        std::memcpy(target.data(), bytes.data() + (first - begin), target.size());
        copied += target.size();
      }
    }
    return copied;
  }

 private:
  void find_runs(const PlannedChunk& planned, const TensorRecord& tensor) {
    current_ = &planned;
    runs_.clear();
    for (const PlannedCopy& copy : planned.copies) {
      runs_.push_back(
          runs_of(copy.part, tensor.chunks[planned.chunk].box, wanted_[copy.wanted].box));
    }
  }

  const Manifest& manifest_;
  const std::span<const Wanted> wanted_;
  const PlannedChunk* current_ = nullptr;
  std::vector<std::vector<Run>> runs_;  // of each copy of it
};

// Carries a plan out, file by file and batch by batch.
class Load {
 public:
  Load(const Manifest& manifest, std::span<const Wanted> wanted,
       std::span<FileSource* const> sources, const LoadOptions& options)
      : manifest_(manifest), sources_(sources), options_(options), out_(manifest, wanted) {}

  base::Result<LoadReport> run(const LoadPlan& plan) {
    report_.wanted_bytes = plan.wanted_bytes;
    for (const PlannedFile& file : plan.files) RETURN_IF_ERROR(run_file(file));
    CHECK_EQ(bytes_done_, plan.wanted_bytes);
    return std::move(report_);
  }

 private:
  // Of one source and one file. A doubtful one had a bad piece: it comes after all others then. A
  // broken one could not read, and is not asked again.
  enum class Trust : uint8_t { kGood, kDoubtful, kBroken };
  struct Candidate {
    FileSource* source = nullptr;
    Trust trust = Trust::kGood;
    std::string said;  // why it is broken
  };

  Status run_file(const PlannedFile& file) {
    const FileRecord& record = manifest_.files[file.file];
    std::vector<Candidate> candidates;
    for (FileSource* source : sources_) {
      if (source->has(record)) candidates.push_back({.source = source});
    }
    for (const Batch& batch : batches_of(file, options_.scratch_bytes_max)) {
      RETURN_IF_ERROR(check_leave(options_));
      RETURN_IF_ERROR(run_batch(file, batch, candidates));
      if (options_.on_progress) options_.on_progress(bytes_done_);
    }
    return Status::ok();
  }

  Status run_batch(const PlannedFile& file, const Batch& batch,
                   std::vector<Candidate>& candidates) {
    PlacedBatch placed = place(file, batch, scratch_);
    std::vector<ReadRange> ranges = std::move(placed.ranges);
    std::vector<Pending> pending;
    for (const PlacedPiece& piece : placed.pieces) pending.push_back({.placed = piece});
    for (Candidate* candidate : in_order(candidates)) {
      if (candidate->trust == Trust::kBroken) {
        for (Pending& piece : pending) piece.said.push_back(candidate->said);
        continue;
      }
      if (pending.size() < placed.pieces.size()) ranges = ranges_of(pending);
      RETURN_IF_ERROR(ask(file, *candidate, ranges, pending));
      if (pending.empty()) return Status::ok();
    }
    return nobody_has(file, pending.front());
  }

  static std::vector<Candidate*> in_order(std::vector<Candidate>& candidates) {
    std::vector<Candidate*> order;
    for (Candidate& candidate : candidates) order.push_back(&candidate);
    std::stable_sort(order.begin(), order.end(),
                     [](const Candidate* a, const Candidate* b) { return a->trust < b->trust; });
    return order;
  }

  // Takes out of `pending` what this source had good bytes for. Only kCancelled is an error.
  Status ask(const PlannedFile& file, Candidate& candidate, std::span<const ReadRange> ranges,
             std::vector<Pending>& pending) {
    const FileRecord& record = manifest_.files[file.file];
    report_.read_bytes += bytes_of(ranges);
    const Status status = candidate.source->read(record, ranges);
    if (status.code() == StatusCode::kCancelled) return status;
    const std::string name = candidate.source->name();
    if (!status.is_ok()) {
      candidate.trust = Trust::kBroken;
      candidate.said = name + ": " + status.to_string();
      report_.bad.push_back({.source = name, .file = record.name, .why = status});
      for (Pending& piece : pending) piece.said.push_back(candidate.said);
      return Status::ok();
    }
    std::vector<Pending> bad;
    for (Pending& piece : pending) {
      Status wrong = check_piece(manifest_, file, piece.placed);
      if (wrong.is_ok()) {
        bytes_done_ += out_.copy(file, *piece.placed.piece, piece.placed.at);
        continue;
      }
      candidate.trust = Trust::kDoubtful;
      piece.said.push_back(name + ": " + wrong.message());
      report_.bad.push_back({.source = name, .file = record.name, .why = std::move(wrong)});
      bad.push_back(std::move(piece));
    }
    pending = std::move(bad);
    return Status::ok();
  }

  Status nobody_has(const PlannedFile& file, const Pending& piece) const {
    std::string text =
        "no source has good bytes for " + describe(manifest_, file, *piece.placed.piece);
    if (piece.said.empty()) {
      text += ": none of " + std::to_string(sources_.size()) + " sources has the file";
    }
    for (const std::string& said : piece.said) text += "; " + said;
    return base::data_loss(std::move(text));
  }

  const Manifest& manifest_;
  const std::span<FileSource* const> sources_;
  const LoadOptions& options_;
  CopyOut out_;
  Scratch scratch_;
  LoadReport report_;
  uint64_t bytes_done_ = 0;
};

}  // namespace

base::Result<LoadReport> load_tensors(const Manifest& manifest, std::span<const Wanted> wanted,
                                      std::span<FileSource* const> sources,
                                      const LoadOptions& options) {
  RETURN_IF_ERROR(check_manifest(manifest));
  ASSIGN_OR_RETURN(const LoadPlan plan, plan_load(manifest, wanted, options));
  return Load(manifest, wanted, sources, options).run(plan);
}

}  // namespace perdure::checkpoint
