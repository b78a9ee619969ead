#include "checkpoint/load_plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

std::string shape_text(const Shape& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  }
  return text + "]";
}

// Lists what is missing: a name by itself rarely tells whether it is the model or the checkpoint
// that is another one.
Status check_presence(const Manifest& manifest, std::span<const Wanted> wanted) {
  constexpr size_t kListedMax = 100;
  std::set<std::string_view> missing;
  for (const Wanted& want : wanted) {
    if (manifest.find(want.tensor) == nullptr) missing.insert(want.tensor);
  }
  if (missing.empty()) return Status::ok();
  std::string list;
  size_t listed = 0;
  for (const std::string_view name : missing) {
    if (listed == kListedMax) break;
    list += (listed++ == 0 ? "" : ", ") + in_quotes(name);
  }
  if (missing.size() > kListedMax) list += ", ...";
  return base::not_found("the checkpoint of step " + std::to_string(manifest.step) + " has " +
                         std::to_string(manifest.tensors.size()) + " tensors and lacks " +
                         std::to_string(missing.size()) + " of those that are wanted: " + list);
}

Status check_wanted(const TensorRecord& tensor, const Wanted& want) {
  const std::string name = "tensor " + in_quotes(want.tensor);
  if (want.type != tensor.type || want.shape != tensor.shape) {
    return base::invalid_argument(name + ": wanted as " + std::string(to_string(want.type)) + " " +
                                  shape_text(want.shape) + ", the checkpoint has " +
                                  std::string(to_string(tensor.type)) + " " +
                                  shape_text(tensor.shape));
  }
  if (!lies_in(want.box, want.shape)) {
    return base::invalid_argument(name + ": the box at " + shape_text(want.box.offset) +
                                  " of size " + shape_text(want.box.size) +
                                  " does not lie in the shape " + shape_text(want.shape));
  }
  const uint64_t bits = *element_count(want.box.size) * size_bits(want.type);
  if (bits % 8 != 0) {
    return base::invalid_argument(name + ": the box " + to_string(want.box) + " of " +
                                  std::string(to_string(want.type)) + " does not fill whole bytes");
  }
  CHECK_EQ(want.to.size(), bits / 8) << name;
  return Status::ok();
}

// The pieces of one chunk that somebody needs, and who.
struct ChunkNeed {
  PlannedChunk chunk;
  std::vector<bool> pieces;
};

class Planner {
 public:
  Planner(const Manifest& manifest, const LoadOptions& options)
      : manifest_(manifest), options_(options) {}

  Status want(size_t index, const Wanted& want) {
    const TensorRecord* tensor = manifest_.find(want.tensor);
    RETURN_IF_ERROR(check_wanted(*tensor, want));
    plan_.wanted_bytes += want.to.size();
    if (!tensor->alias_of.empty()) tensor = manifest_.find(tensor->alias_of);
    CHECK(tensor != nullptr && tensor->alias_of.empty()) << want.tensor;
    for (size_t c = 0; c < tensor->chunks.size(); ++c) {
      Box part = intersect(tensor->chunks[c].box, want.box);
      if (is_empty(part)) continue;
      ChunkNeed& need = need_of(*tensor, c);
      RETURN_IF_ERROR(mark(*tensor, tensor->chunks[c], want, part, need));
      need.chunk.copies.push_back({.wanted = index, .part = std::move(part)});
    }
    return Status::ok();
  }

  void want_all() {
    for (const TensorRecord& tensor : manifest_.tensors) {
      for (size_t c = 0; c < tensor.chunks.size(); ++c) {
        if (tensor.chunks[c].bytes == 0) continue;
        ChunkNeed& need = need_of(tensor, c);
        need.pieces.assign(need.pieces.size(), true);
      }
    }
  }

  LoadPlan finish() {
    for (auto& [place, need] : needs_) {
      if (plan_.files.empty() || plan_.files.back().file != place.first) {
        plan_.files.push_back({.file = place.first});
      }
      add_pieces(plan_.files.back(), need);
    }
    for (PlannedFile& file : plan_.files) join(file);
    return std::move(plan_);
  }

 private:
  ChunkNeed& need_of(const TensorRecord& tensor, size_t c) {
    const ChunkRecord& chunk = tensor.chunks[c];
    ChunkNeed& need = needs_[{chunk.file, chunk.offset}];
    if (need.pieces.empty()) {
      need.chunk.tensor = static_cast<uint32_t>(&tensor - manifest_.tensors.data());
      need.chunk.chunk = static_cast<uint32_t>(c);
      need.pieces.resize(chunk.piece_hashes.size());
    }
    return need;
  }

  static Status mark(const TensorRecord& tensor, const ChunkRecord& chunk, const Wanted& want,
                     const Box& part, ChunkNeed& need) {
    const uint64_t bits = size_bits(tensor.type);
    for (const Run& run : runs_of(part, chunk.box, want.box)) {
      if (run.from * bits % 8 != 0 || run.to * bits % 8 != 0 || run.count * bits % 8 != 0) {
        return base::invalid_argument("tensor " + in_quotes(want.tensor) + ": the part " +
                                      to_string(part) + " of the chunk " + to_string(chunk.box) +
                                      " of " + std::string(to_string(tensor.type)) +
                                      " does not begin and end at whole bytes");
      }
      const uint64_t begin = run.from * bits / 8;
      const uint64_t last = begin + run.count * bits / 8 - 1;
      CHECK_LT(last, chunk.bytes);
      for (uint64_t p = begin / kPieceBytes; p <= last / kPieceBytes; ++p) need.pieces[p] = true;
    }
    return Status::ok();
  }

  void add_pieces(PlannedFile& file, ChunkNeed& need) {
    const ChunkRecord& chunk = manifest_.tensors[need.chunk.tensor].chunks[need.chunk.chunk];
    for (size_t p = 0; p < need.pieces.size(); ++p) {
      if (!need.pieces[p]) continue;
      const uint64_t at = p * kPieceBytes;
      file.pieces.push_back({.chunk = file.chunks.size(),
                             .piece = p,
                             .offset = chunk.offset + at,
                             .bytes = std::min(kPieceBytes, chunk.bytes - at)});
    }
    file.chunks.push_back(std::move(need.chunk));
  }

  // Neighbours are read together while what lies between them is small, absolutely and beside what
  // is needed, and all of it fits the scratch memory.
  void join(PlannedFile& file) {
    uint64_t needed = 0;
    for (size_t p = 0; p < file.pieces.size(); ++p) {
      const PlannedPiece& piece = file.pieces[p];
      if (!file.ranges.empty()) {
        PlannedRange& range = file.ranges.back();
        const uint64_t gap = piece.offset - (range.offset + range.bytes);
        const uint64_t bytes = range.bytes + gap + piece.bytes;
        const double enough = options_.over_read_max * static_cast<double>(needed + piece.bytes);
        const bool is_near =
            gap == 0 || (gap <= options_.gap_bytes_max && static_cast<double>(bytes) <= enough);
        if (is_near && bytes <= options_.scratch_bytes_max) {
          plan_.read_bytes += bytes - range.bytes;
          needed += piece.bytes;
          range.bytes = bytes;
          range.piece_end = p + 1;
          continue;
        }
      }
      needed = piece.bytes;
      plan_.read_bytes += piece.bytes;
      file.ranges.push_back(
          {.offset = piece.offset, .bytes = piece.bytes, .piece_begin = p, .piece_end = p + 1});
    }
  }

  const Manifest& manifest_;
  const LoadOptions& options_;
  std::map<std::pair<uint32_t, uint64_t>, ChunkNeed> needs_;  // by file and offset
  LoadPlan plan_;
};

}  // namespace

base::Result<LoadPlan> plan_load(const Manifest& manifest, std::span<const Wanted> wanted,
                                 const LoadOptions& options) {
  RETURN_IF_ERROR(check_presence(manifest, wanted));
  Planner planner(manifest, options);
  for (size_t i = 0; i < wanted.size(); ++i) RETURN_IF_ERROR(planner.want(i, wanted[i]));
  return planner.finish();
}

LoadPlan plan_verify(const Manifest& manifest, const LoadOptions& options) {
  Planner planner(manifest, options);
  planner.want_all();
  return planner.finish();
}

std::string describe(const Manifest& manifest, const PlannedFile& file, const PlannedPiece& piece) {
  const PlannedChunk& planned = file.chunks[piece.chunk];
  const TensorRecord& tensor = manifest.tensors[planned.tensor];
  return "tensor " + in_quotes(tensor.name) + ", piece " + std::to_string(piece.piece) + " of " +
         to_string(tensor.chunks[planned.chunk].box) + " (bytes " + std::to_string(piece.offset) +
         " to " + std::to_string(piece.offset + piece.bytes) + " of " +
         manifest.files[file.file].name + ")";
}

}  // namespace perdure::checkpoint
