#pragma once
// Checkpoints in memory, made element by element, and sources that can be broken.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/manifest.h"
#include "tests/checkpoint/random_boxes.h"

namespace perdure::checkpoint::testing {

using Bytes = std::vector<std::byte>;

inline Bytes random_bytes(base::SeededRandom& random, size_t size) {
  Bytes bytes(size);
  size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    const uint64_t word = random.next_u64();
    std::memcpy(&bytes[at], &word, 8);
  }
  for (; at < size; ++at) bytes[at] = static_cast<std::byte>(random.next_u64());
  return bytes;
}

// Of types that fill whole bytes.
inline size_t element_bytes(ElementType type) { return size_bits(type) / 8; }

// The oracle: a part of a dense tensor, element by element.
inline Bytes gather(const Bytes& dense, const Shape& shape, const Box& box, size_t bytes_each) {
  Bytes part;
  for (const int64_t place : places(box, shape)) {
    const auto first = dense.begin() + place * static_cast<ptrdiff_t>(bytes_each);
    part.insert(part.end(), first, first + static_cast<ptrdiff_t>(bytes_each));
  }
  return part;
}

// Collects tensors; finish() makes the manifest. Chunks lie in their files in the order of add().
class CheckpointMaker {
 public:
  explicit CheckpointMaker(size_t file_count) {
    for (size_t f = 0; f < file_count; ++f) {
      const std::string name = "rank-000" + std::to_string(f) + ".safetensors";
      manifest_.files.push_back({.name = name});
      images_.push_back(Bytes(96 + f, std::byte{'h'}));
      hashes_.emplace_back();
    }
    manifest_.step = 120;
  }

  struct Part {
    Box box;
    uint32_t file = 0;
    size_t gap_bytes = 0;  // before it
  };
  const Bytes& add(const std::string& name, ElementType type, const Shape& shape, Bytes dense,
                   const std::vector<Part>& parts) {
    TensorRecord tensor = {.name = name, .type = type, .shape = shape};
    for (const Part& part : parts) {
      Bytes& image = images_[part.file];
      // A header is never torn by a gap: it ends where the first chunk begins.
      if (!hashes_[part.file].empty()) image.resize(image.size() + part.gap_bytes);
      const Bytes chunk = gather(dense, shape, part.box, element_bytes(type));
      tensor.chunks.push_back({.box = part.box,
                               .file = part.file,
                               .offset = image.size(),
                               .bytes = chunk.size(),
                               .piece_hashes = hash_pieces(chunk)});
      image.insert(image.end(), chunk.begin(), chunk.end());
      auto& hashes = hashes_[part.file];
      if (hashes.empty() && !chunk.empty()) header_bytes_[part.file] = image.size() - chunk.size();
      hashes.insert(hashes.end(), tensor.chunks.back().piece_hashes.begin(),
                    tensor.chunks.back().piece_hashes.end());
    }
    manifest_.tensors.push_back(std::move(tensor));
    return dense_[name] = std::move(dense);
  }

  void add_alias(const std::string& name, const std::string& of) {
    const auto target = std::find_if(manifest_.tensors.begin(), manifest_.tensors.end(),
                                     [&](const TensorRecord& t) { return t.name == of; });
    manifest_.tensors.push_back(
        {.name = name, .type = target->type, .shape = target->shape, .alias_of = of});
    dense_[name] = dense_[of];
  }

  Manifest finish() {
    std::sort(manifest_.tensors.begin(), manifest_.tensors.end(),
              [](const TensorRecord& a, const TensorRecord& b) { return a.name < b.name; });
    for (size_t f = 0; f < images_.size(); ++f) {
      const auto header = header_bytes_.find(f);
      const size_t header_bytes =
          header == header_bytes_.end() ? images_[f].size() : header->second;
      manifest_.files[f].bytes = images_[f].size();
      manifest_.files[f].hash =
          hash_file(base::ByteSpan(images_[f]).first(header_bytes), hashes_[f]);
    }
    return manifest_;
  }

  std::map<std::string, Bytes> images() const {
    std::map<std::string, Bytes> images;
    for (size_t f = 0; f < images_.size(); ++f) images[manifest_.files[f].name] = images_[f];
    return images;
  }
  const Bytes& dense(const std::string& name) const { return dense_.at(name); }

 private:
  Manifest manifest_;
  std::vector<Bytes> images_;
  std::vector<std::vector<uint64_t>> hashes_;
  std::map<size_t, size_t> header_bytes_;
  std::map<std::string, Bytes> dense_;
};

class MemorySource final : public FileSource {
 public:
  MemorySource(std::string name, std::map<std::string, Bytes> images)
      : files(std::move(images)), name_(std::move(name)) {}

  std::map<std::string, Bytes> files;
  std::map<std::string, base::Status> errors;  // of a file: what a read of it gives
  uint64_t read_bytes = 0;
  uint64_t read_bytes_max = 0;  // of one read
  std::map<std::string, int> reads;
  std::vector<std::string> wrong_ranges;  // that break the seam's contract

  std::string name() const override { return name_; }
  bool has(const FileRecord& file) const override { return files.contains(file.name); }

  base::Status read(const FileRecord& file, std::span<const ReadRange> ranges) override {
    ++reads[file.name];
    uint64_t end = 0;
    uint64_t bytes = 0;
    const Bytes& image = files.at(file.name);
    for (const ReadRange& range : ranges) {
      if (range.offset < end || range.to.empty()) wrong_ranges.push_back(file.name);
      end = range.offset + range.to.size();
      bytes += range.to.size();
      if (end > image.size()) return base::data_loss(file.name + " ends before");
      std::memcpy(range.to.data(), image.data() + range.offset, range.to.size());
    }
    read_bytes += bytes;
    read_bytes_max = std::max(read_bytes_max, bytes);
    const auto error = errors.find(file.name);
    return error == errors.end() ? base::Status::ok() : error->second;
  }

 private:
  const std::string name_;
};

// Boxes that are wanted of a checkpoint, with memory for each.
class WantedList {
 public:
  WantedList(const Manifest& manifest, const CheckpointMaker& maker)
      : manifest_(manifest), maker_(maker) {}

  void add(const std::string& tensor, const Box& box) {
    const TensorRecord& record = *manifest_.find(tensor);
    const size_t bytes = *element_count(box.size) * element_bytes(record.type);
    memory_.push_back(std::make_unique<Bytes>(bytes, std::byte{0xEE}));
    wanted_.push_back({.tensor = tensor,
                       .type = record.type,
                       .shape = record.shape,
                       .box = box,
                       .to = *memory_.back()});
  }

  std::vector<Wanted>& list() { return wanted_; }

  // The index of the first that has not what the dense tensor has there; the count when all have.
  size_t first_wrong() const {
    for (size_t i = 0; i < wanted_.size(); ++i) {
      const Wanted& want = wanted_[i];
      const Bytes expected =
          gather(maker_.dense(want.tensor), want.shape, want.box, element_bytes(want.type));
      if (*memory_[i] != expected) return i;
    }
    return wanted_.size();
  }

 private:
  const Manifest& manifest_;
  const CheckpointMaker& maker_;
  std::vector<std::unique_ptr<Bytes>> memory_;
  std::vector<Wanted> wanted_;
};

}  // namespace perdure::checkpoint::testing
