#pragma once
// Small saves whose content follows from their id, and what a folder must hold after them.

#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "tests/checkpoint/manifest_samples.h"

namespace perdure::testing {

struct ToySave {
  checkpoint::SaveId id;
  checkpoint::Manifest manifest;
  std::vector<std::string> contents;  // of each file
};

inline constexpr size_t kToyHeaderBytes = 24;

// Each writer has one file with a header and one tensor; the last writer has nothing to save but
// the header.
inline ToySave make_toy_save(const checkpoint::SaveId& id, size_t writers = 3) {
  ToySave save = {.id = id,
                  .manifest = {.step = id.step, .epoch = id.epoch, .attempt = id.attempt}};
  save.manifest.counters["applied_steps"] = id.step;
  base::SeededRandom random(id.step * 1000 + id.epoch, id.attempt);
  for (size_t w = 0; w < writers; ++w) {
    const size_t tensor_bytes = w + 1 == writers ? 0 : 400 + random.uniform_int(400);
    std::string content(kToyHeaderBytes + tensor_bytes, '\0');
    for (char& c : content) c = static_cast<char>(random.next_u64());
    const base::ByteSpan bytes = base::as_byte_span(content);
    const auto hashes = checkpoint::hash_pieces(bytes.subspan(kToyHeaderBytes));
    save.manifest.files.push_back(
        {.name = "rank-000" + std::to_string(w) + ".safetensors",
         .bytes = content.size(),
         .hash = checkpoint::hash_file(bytes.first(kToyHeaderBytes), hashes)});
    const auto size = static_cast<int64_t>(tensor_bytes);
    save.manifest.tensors.push_back({.name = "t" + std::to_string(w),
                                     .type = checkpoint::ElementType::kU8,
                                     .shape = {size},
                                     .chunks = {{.box = {{0}, {size}},
                                                 .file = static_cast<uint32_t>(w),
                                                 .offset = kToyHeaderBytes,
                                                 .bytes = tensor_bytes,
                                                 .piece_hashes = hashes}}});
    save.contents.push_back(std::move(content));
  }
  return save;
}

// All writers at once, each in two parts.
inline base::Status write_files(base::FileSystem& files, const std::string& folder,
                                const ToySave& save) {
  std::vector<std::unique_ptr<base::File>> open;
  for (const checkpoint::FileRecord& file : save.manifest.files) {
    ASSIGN_OR_RETURN(open.emplace_back(),
                     files.open(folder + "/" + file.name, base::OpenMode::kCreateNew));
  }
  for (const size_t part : {0, 1}) {
    for (size_t w = 0; w < open.size(); ++w) {
      const base::ByteSpan bytes = base::as_byte_span(save.contents[w]);
      const size_t half = bytes.size() / 2;
      RETURN_IF_ERROR(part == 0 ? open[w]->pwrite(0, bytes.first(half))
                                : open[w]->pwrite(half, bytes.subspan(half)));
    }
  }
  for (const auto& file : open) {
    RETURN_IF_ERROR(file->sync());
    RETURN_IF_ERROR(file->close());
  }
  return base::Status::ok();
}

inline base::Status save_all(base::FileSystem& files, checkpoint::CheckpointFolder& folder,
                             const ToySave& save, uint64_t fence_epoch) {
  ASSIGN_OR_RETURN(const std::string path, folder.begin(save.id));
  RETURN_IF_ERROR(write_files(files, path, save));
  RETURN_IF_ERROR(folder.seal(save.id, save.manifest.files));
  return folder.publish(save.id, save.manifest, fence_epoch);
}

// The folder's files have the bytes that its manifest promises.
inline base::Status check_contents(base::FileSystem& files, checkpoint::CheckpointFolder& folder,
                                   const checkpoint::SaveId& id) {
  ASSIGN_OR_RETURN(const checkpoint::Manifest manifest, folder.read(id));
  const auto lost = [&](const std::string& what) {
    return base::data_loss(folder.path(id) + ": " + what);
  };
  if (manifest_text(manifest) != manifest_text(make_toy_save(id).manifest)) {
    return lost("another manifest");
  }
  for (size_t w = 0; w < manifest.files.size(); ++w) {
    const std::string path = folder.path(id) + "/" + manifest.files[w].name;
    ASSIGN_OR_RETURN(const auto bytes, base::read_file(files, path, 1 << 20));
    if (bytes.size() != manifest.files[w].bytes) return lost("file size");
    const base::ByteSpan span = bytes;
    const auto hashes = checkpoint::hash_pieces(span.subspan(kToyHeaderBytes));
    if (hashes != manifest.tensors[w].chunks[0].piece_hashes) return lost("piece hashes");
    if (checkpoint::hash_file(span.first(kToyHeaderBytes), hashes) != manifest.files[w].hash) {
      return lost("file hash");
    }
  }
  return base::Status::ok();
}

}  // namespace perdure::testing
