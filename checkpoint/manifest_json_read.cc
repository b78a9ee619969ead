#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "base/check.h"
#include "checkpoint/manifest_json.h"
#include "checkpoint/strict_json.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

constexpr size_t kHexDigits = 16;

enum class In : uint8_t {
  kManifest,
  kCounters,
  kFiles,
  kFile,
  kNodes,
  kTensors,
  kTensor,
  kShape,
  kChunks,
  kChunk,
  kBoxOffset,
  kBoxSize,
  kPieces,
};

enum class Field : uint8_t {
  kStep,
  kEpoch,
  kAttempt,
  kModel,
  kLayout,
  kCounters,
  kFiles,
  kTensors,
  kFileName,
  kFileBytes,
  kFileHash,
  kNodes,
  kTensorName,
  kType,
  kShape,
  kAliasOf,
  kChunks,
  kBoxOffset,
  kBoxSize,
  kChunkFile,
  kChunkOffset,
  kChunkBytes,
  kPieces,
};

enum class Kind : uint8_t { kInteger, kString, kObject, kList };

struct FieldRule {
  In in;
  std::string_view name;
  Field field;
  Kind kind;
  In inner = In::kManifest;  // of an object or a list
};

constexpr std::array<FieldRule, 23> kFieldRules = {{
    {In::kManifest, "step", Field::kStep, Kind::kInteger},
    {In::kManifest, "epoch", Field::kEpoch, Kind::kInteger},
    {In::kManifest, "attempt", Field::kAttempt, Kind::kString},
    {In::kManifest, "model", Field::kModel, Kind::kString},
    {In::kManifest, "layout", Field::kLayout, Kind::kString},
    {In::kManifest, "counters", Field::kCounters, Kind::kObject, In::kCounters},
    {In::kManifest, "files", Field::kFiles, Kind::kList, In::kFiles},
    {In::kManifest, "tensors", Field::kTensors, Kind::kList, In::kTensors},
    {In::kFile, "name", Field::kFileName, Kind::kString},
    {In::kFile, "bytes", Field::kFileBytes, Kind::kInteger},
    {In::kFile, "hash", Field::kFileHash, Kind::kString},
    {In::kFile, "nodes", Field::kNodes, Kind::kList, In::kNodes},
    {In::kTensor, "name", Field::kTensorName, Kind::kString},
    {In::kTensor, "type", Field::kType, Kind::kString},
    {In::kTensor, "shape", Field::kShape, Kind::kList, In::kShape},
    {In::kTensor, "alias_of", Field::kAliasOf, Kind::kString},
    {In::kTensor, "chunks", Field::kChunks, Kind::kList, In::kChunks},
    {In::kChunk, "box_offset", Field::kBoxOffset, Kind::kList, In::kBoxOffset},
    {In::kChunk, "box_size", Field::kBoxSize, Kind::kList, In::kBoxSize},
    {In::kChunk, "file", Field::kChunkFile, Kind::kInteger},
    {In::kChunk, "offset", Field::kChunkOffset, Kind::kInteger},
    {In::kChunk, "bytes", Field::kChunkBytes, Kind::kInteger},
    {In::kChunk, "pieces", Field::kPieces, Kind::kList, In::kPieces},
}};

// What a list's elements are, when they are objects.
std::optional<In> element_of(In list) {
  switch (list) {
    case In::kFiles:
      return In::kFile;
    case In::kTensors:
      return In::kTensor;
    case In::kChunks:
      return In::kChunk;
    default:
      return std::nullopt;
  }
}

bool is_number_list(In in) {
  return in == In::kNodes || in == In::kShape || in == In::kBoxOffset || in == In::kBoxSize;
}

std::optional<uint64_t> from_hex(std::string_view text) {
  if (text.size() != kHexDigits) return std::nullopt;
  for (const char c : text) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return std::nullopt;
  }
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, kHexDigits);
  return value;
}

// Takes values where the format has them and refuses all else at once, so that a hostile text uses
// no more memory than a manifest of its length.
class ManifestReceiver final : public JsonReceiver {
 public:
  Manifest take() { return std::move(manifest_); }

  Status on_begin_object() override {
    if (stack_.empty()) return push(In::kManifest);
    if (const FieldRule* rule = stack_.back().rule) {
      if (rule->kind != Kind::kObject) return wrong("an object");
      return push(rule->inner);
    }
    const std::optional<In> element = element_of(stack_.back().in);
    if (!element) return wrong("an object");
    ++stack_.back().count;
    if (*element == In::kFile) manifest_.files.emplace_back();
    if (*element == In::kTensor) manifest_.tensors.emplace_back();
    if (*element == In::kChunk) tensor().chunks.emplace_back();
    return push(*element);
  }

  Status on_begin_array() override {
    const FieldRule* rule = stack_.back().rule;
    if (rule == nullptr || rule->kind != Kind::kList) return wrong("a list");
    return push(rule->inner);
  }

  Status on_end() override {
    RETURN_IF_ERROR(check_complete());
    stack_.pop_back();
    return Status::ok();
  }

  Status on_key(std::string& key) override {
    Frame& frame = stack_.back();
    if (frame.in == In::kCounters) {
      counter_ = std::move(key);
      return Status::ok();
    }
    frame.rule = nullptr;
    for (const FieldRule& rule : kFieldRules) {
      if (rule.in == frame.in && rule.name == key) frame.rule = &rule;
    }
    if (frame.rule == nullptr) {
      return base::data_loss(where() + " has the unknown field " + in_quotes(key));
    }
    frame.seen |= bit(frame.rule->field);
    return Status::ok();
  }

  Status on_string(std::string& value) override {
    Frame& frame = stack_.back();
    if (frame.in == In::kPieces) {
      ++frame.count;
      ASSIGN_OR_RETURN(const uint64_t hash, hash_of(value));
      chunk().piece_hashes.push_back(hash);
      return Status::ok();
    }
    if (frame.rule == nullptr || frame.rule->kind != Kind::kString) return wrong("a string");
    return take_string(frame.rule->field, value);
  }

  Status on_integer(uint64_t value) override {
    Frame& frame = stack_.back();
    if (frame.in == In::kCounters) {
      manifest_.counters[std::move(counter_)] = value;
      return Status::ok();
    }
    if (is_number_list(frame.in)) {
      ++frame.count;
      return take_element(frame.in, value);
    }
    if (frame.rule == nullptr || frame.rule->kind != Kind::kInteger) return wrong("an integer");
    return take_integer(frame.rule->field, value);
  }

  Status on_other() override {
    return base::data_loss(where() +
                           " is neither a string nor an integer from 0 to 2^64 - 1, written in "
                           "digits only");
  }

 private:
  struct Frame {
    In in = In::kManifest;
    const FieldRule* rule = nullptr;  // of an object: the key that came last
    uint32_t seen = 0;                // of an object: its fields
    size_t count = 0;                 // of a list: elements so far
  };

  static constexpr uint32_t bit(Field field) { return uint32_t{1} << static_cast<uint32_t>(field); }

  TensorRecord& tensor() { return manifest_.tensors.back(); }
  ChunkRecord& chunk() { return tensor().chunks.back(); }

  Status push(In in) {
    stack_.push_back({.in = in});
    return Status::ok();
  }

  // "tensors[12].chunks[0].offset"
  std::string where() const {
    std::string text;
    for (const Frame& frame : stack_) {
      if (frame.in == In::kCounters) {
        text += "." + in_quotes(counter_);
      } else if (frame.rule != nullptr) {
        text += (text.empty() ? "" : ".") + std::string(frame.rule->name);
      } else if (frame.count > 0) {
        text += "[" + std::to_string(frame.count - 1) + "]";
      }
    }
    return text.empty() ? "the manifest" : text;
  }

  Status wrong(std::string_view what) const {
    return base::data_loss(where() + " holds " + std::string(what) + " where the format has none");
  }

  base::Result<uint64_t> hash_of(std::string_view text) const {
    const std::optional<uint64_t> value = from_hex(text);
    if (value) return *value;
    return base::data_loss(where() + " is " + in_quotes(text) + ", not 16 digits 0-9a-f");
  }

  template <typename Integer>
  Status take_number(uint64_t value, Integer& to) const {
    constexpr uint64_t kMax = std::numeric_limits<Integer>::max();
    if (value > kMax) {
      return base::data_loss(where() + " is " + std::to_string(value) + ", at most " +
                             std::to_string(kMax));
    }
    to = static_cast<Integer>(value);
    return Status::ok();
  }

  Status take_element(In in, uint64_t value) {
    if (in == In::kNodes) {
      return take_number(value, manifest_.files.back().nodes.emplace_back());
    }
    if (in == In::kShape) return take_number(value, tensor().shape.emplace_back());
    Box& box = chunk().box;
    return take_number(value,
                       in == In::kBoxOffset ? box.offset.emplace_back() : box.size.emplace_back());
  }

  Status take_integer(Field field, uint64_t value) {
    switch (field) {
      case Field::kStep:
        return take_number(value, manifest_.step);
      case Field::kEpoch:
        return take_number(value, manifest_.epoch);
      case Field::kFileBytes:
        return take_number(value, manifest_.files.back().bytes);
      case Field::kChunkFile:
        return take_number(value, chunk().file);
      case Field::kChunkOffset:
        return take_number(value, chunk().offset);
      case Field::kChunkBytes:
        return take_number(value, chunk().bytes);
      default:
        CHECK(false) << "no integer field " << static_cast<int>(field);
        return Status::ok();
    }
  }

  Status take_hash(std::string_view text, uint64_t& to) const {
    ASSIGN_OR_RETURN(to, hash_of(text));
    return Status::ok();
  }

  Status take_type(const std::string& value) {
    const std::optional<ElementType> type = element_type_of(value);
    if (!type) return base::data_loss(where() + " is " + in_quotes(value) + ", no element type");
    tensor().type = *type;
    return Status::ok();
  }

  Status take_string(Field field, std::string& value) {
    switch (field) {
      case Field::kAttempt:
        return take_hash(value, manifest_.attempt);
      case Field::kFileHash:
        return take_hash(value, manifest_.files.back().hash);
      case Field::kType:
        return take_type(value);
      case Field::kModel:
        manifest_.model = std::move(value);
        return Status::ok();
      case Field::kLayout:
        manifest_.layout = std::move(value);
        return Status::ok();
      case Field::kFileName:
        manifest_.files.back().name = std::move(value);
        return Status::ok();
      case Field::kTensorName:
        tensor().name = std::move(value);
        return Status::ok();
      case Field::kAliasOf:
        if (value.empty()) return base::data_loss(where() + " names no tensor");
        tensor().alias_of = std::move(value);
        return Status::ok();
      default:
        CHECK(false) << "no string field " << static_cast<int>(field);
        return Status::ok();
    }
  }

  // All fields are there. A tensor has its chunks, or is an alias.
  Status check_complete() {
    Frame& frame = stack_.back();
    frame.rule = nullptr;
    uint32_t seen = frame.seen;
    if (frame.in == In::kTensor) {
      const bool has_chunks = (seen & bit(Field::kChunks)) != 0;
      if (has_chunks && (seen & bit(Field::kAliasOf)) != 0) {
        return base::data_loss(where() + " has chunks and is an alias");
      }
      seen |= bit(has_chunks ? Field::kAliasOf : Field::kChunks);
      if (!has_chunks && (frame.seen & bit(Field::kAliasOf)) == 0) {
        return base::data_loss(where() + " has neither chunks nor alias_of");
      }
    }
    for (const FieldRule& rule : kFieldRules) {
      if (rule.in == frame.in && (seen & bit(rule.field)) == 0) {
        return base::data_loss(where() + " has no field '" + std::string(rule.name) + "'");
      }
    }
    return Status::ok();
  }

  Manifest manifest_;
  std::vector<Frame> stack_;
  std::string counter_;
};

}  // namespace

base::Result<Manifest> manifest_from_json(std::string_view json) {
  ManifestReceiver receiver;
  // Manifest, tensors, tensor, chunks, chunk, pieces.
  RETURN_IF_ERROR(
      read_strict_json(json, {.depth_max = 6, .keys_max = kManifestCountersMax}, receiver));
  return receiver.take();
}

}  // namespace perdure::checkpoint
