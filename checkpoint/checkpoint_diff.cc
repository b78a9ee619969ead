#include "checkpoint/checkpoint_diff.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/check.h"

namespace perdure::checkpoint {
namespace {

using Kind = TensorDifference::Kind;

std::string shape_text(const Shape& shape) { return to_string(whole(shape)); }

std::string alias_text(const TensorRecord& tensor) {
  return tensor.alias_of.empty() ? "its own" : "tied to '" + tensor.alias_of + "'";
}

const TensorRecord& with_chunks(const Manifest& manifest, const TensorRecord& tensor) {
  if (tensor.alias_of.empty()) return tensor;
  const TensorRecord* target = manifest.find(tensor.alias_of);
  CHECK(target != nullptr) << tensor.name << " is an alias of " << tensor.alias_of;
  return *target;
}

using Corner = std::pair<std::vector<int64_t>, std::vector<int64_t>>;

std::map<Corner, const ChunkRecord*> by_box(const TensorRecord& tensor) {
  std::map<Corner, const ChunkRecord*> chunks;
  for (const ChunkRecord& chunk : tensor.chunks) {
    if (chunk.bytes > 0) chunks[{chunk.box.offset, chunk.box.size}] = &chunk;
  }
  return chunks;
}

struct Comparison {
  uint64_t pieces = 0;
  uint64_t differing = 0;
  uint64_t differing_bytes = 0;
  bool is_whole = true;  // every element lies in a chunk that both have
};

Comparison compare(const TensorRecord& a, const TensorRecord& b) {
  const std::map<Corner, const ChunkRecord*> first = by_box(a);
  const std::map<Corner, const ChunkRecord*> second = by_box(b);
  Comparison result = {.is_whole = first.size() == second.size()};
  for (const auto& [box, chunk] : first) {
    const auto found = second.find(box);
    if (found == second.end()) {
      result.is_whole = false;
      continue;
    }
    const ChunkRecord& other = *found->second;
    CHECK_EQ(chunk->piece_hashes.size(), other.piece_hashes.size());
    for (size_t i = 0; i < chunk->piece_hashes.size(); ++i) {
      ++result.pieces;
      if (chunk->piece_hashes[i] == other.piece_hashes[i]) continue;
      ++result.differing;
      result.differing_bytes += std::min(kPieceBytes, chunk->bytes - i * kPieceBytes);
    }
  }
  return result;
}

// Gives whether they are equal to the last bit and in how they are tied.
bool compare_both(const Manifest& first, const Manifest& second, const TensorRecord& a,
                  const TensorRecord& b, std::vector<TensorDifference>& differences) {
  const size_t before = differences.size();
  const auto add = [&](Kind kind, std::string text, uint64_t bytes = 0) {
    differences.push_back({kind, a.name, std::move(text), bytes});
  };
  if (a.alias_of != b.alias_of) add(Kind::kTied, alias_text(a) + " and " + alias_text(b));
  if (a.shape != b.shape) add(Kind::kShape, shape_text(a.shape) + " and " + shape_text(b.shape));
  if (a.type != b.type) {
    add(Kind::kType, std::string(to_string(a.type)) + " and " + std::string(to_string(b.type)));
  }
  if (a.shape != b.shape || a.type != b.type) return false;

  const Comparison compared = compare(with_chunks(first, a), with_chunks(second, b));
  if (compared.differing > 0) {
    add(Kind::kContent,
        std::to_string(compared.differing) + " of " + std::to_string(compared.pieces) +
            (compared.is_whole ? " pieces differ" : " pieces that can be compared differ"),
        compared.differing_bytes);
  } else if (!compared.is_whole) {
    add(Kind::kUnknown, "cut in another way: read both to compare them");
  }
  return differences.size() == before;
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kOnlyInFirst:
      return "only in the first";
    case Kind::kOnlyInSecond:
      return "only in the second";
    case Kind::kType:
      return "type";
    case Kind::kShape:
      return "shape";
    case Kind::kTied:
      return "tied";
    case Kind::kContent:
      return "content";
    case Kind::kUnknown:
      return "unknown";
  }
  CHECK(false) << "kind " << static_cast<int>(kind);
  return "";
}

}  // namespace

ManifestDifference diff_manifests(const Manifest& first, const Manifest& second) {
  ManifestDifference difference;
  const auto only = [&](Kind kind, const TensorRecord& tensor) {
    difference.tensors.push_back(
        {kind, tensor.name, std::string(to_string(tensor.type)) + " " + shape_text(tensor.shape)});
  };
  auto a = first.tensors.begin();
  auto b = second.tensors.begin();
  while (a != first.tensors.end() || b != second.tensors.end()) {
    if (b == second.tensors.end() || (a != first.tensors.end() && a->name < b->name)) {
      only(Kind::kOnlyInFirst, *a++);
    } else if (a == first.tensors.end() || b->name < a->name) {
      only(Kind::kOnlyInSecond, *b++);
    } else {
      if (compare_both(first, second, *a++, *b++, difference.tensors)) ++difference.equal_tensors;
    }
  }
  return difference;
}

std::string to_string(const TensorDifference& difference) {
  return difference.tensor + ": " + std::string(name_of(difference.kind)) + ": " + difference.text;
}

}  // namespace perdure::checkpoint
