#include "apps/ckpt_print.h"

#include <cinttypes>
#include <cstdio>
#include <map>

#include "apps/text_table.h"
#include "checkpoint/checkpoint_folder.h"

namespace perdure::apps {
namespace {

using checkpoint::ChunkRecord;
using checkpoint::FileRecord;
using checkpoint::Manifest;
using checkpoint::SaveId;
using checkpoint::TensorRecord;
using Entry = checkpoint::CheckpointFolder::Entry;
using Rows = std::vector<std::vector<std::string>>;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

bool is_damaged(const Entry& entry) { return entry.problem.code() == base::StatusCode::kDataLoss; }

std::string state_of(const Entry& entry, const SaveId& newest_of_step) {
  if (entry.committed) {
    if (entry.id == newest_of_step) return "committed";
    return "committed, superseded by epoch " + std::to_string(newest_of_step.epoch);
  }
  if (entry.problem.is_ok()) return "unfinished: it has no MANIFEST, so it was never committed";
  return (is_damaged(entry) ? "damaged: " : "can not be read: ") +
         printable(entry.problem.message());
}

std::string shape_text(const checkpoint::Shape& shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  }
  return text + "]";
}

std::string nodes_text(const std::vector<uint32_t>& nodes) {
  if (nodes.empty()) return "here";
  std::string text = nodes.size() == 1 ? "node " : "nodes ";
  for (size_t i = 0; i < nodes.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(nodes[i]);
  }
  return text;
}

std::string files_table(const Manifest& manifest) {
  Rows rows = {{"file", "size", "hash", "where"}};
  for (const FileRecord& file : manifest.files) {
    rows.push_back({file.name, human_size(file.bytes), hex(file.hash), nodes_text(file.nodes)});
  }
  return text_table(rows, {Align::kLeft, Align::kRight}, "  ");
}

}  // namespace

std::string print_scan(const checkpoint::FolderScan& scan) {
  std::map<uint64_t, SaveId> newest;
  for (const Entry& entry : scan.entries) {
    if (entry.committed) newest[entry.id.step] = entry.id;
  }
  Rows rows = {{"step", "epoch", "size", "folder", "state"}};
  uint64_t committed = 0;
  uint64_t unfinished = 0;
  uint64_t damaged = 0;
  uint64_t unreadable = 0;
  uint64_t bytes = 0;
  for (const Entry& entry : scan.entries) {
    if (entry.committed) {
      ++committed;
    } else if (entry.problem.is_ok()) {
      ++unfinished;
    } else {
      ++(is_damaged(entry) ? damaged : unreadable);
    }
    bytes += entry.bytes;
    rows.push_back({std::to_string(entry.id.step), std::to_string(entry.id.epoch),
                    entry.committed ? human_size(entry.bytes) : "-",
                    checkpoint::folder_name(entry.id), state_of(entry, newest[entry.id.step])});
  }
  std::string text = text_table(rows, {Align::kRight, Align::kRight, Align::kRight});
  text += std::to_string(committed) + " committed (" + human_size(bytes) + ")";
  if (unfinished > 0) text += ", " + std::to_string(unfinished) + " unfinished";
  if (damaged > 0) text += ", " + std::to_string(damaged) + " damaged";
  if (unreadable > 0) text += ", " + std::to_string(unreadable) + " that can not be read";
  return text + "\n";
}

std::string print_manifest(const Manifest& manifest, const std::string& path) {
  uint64_t bytes = 0;
  uint64_t chunks = 0;
  uint64_t tied = 0;
  for (const FileRecord& file : manifest.files) bytes += file.bytes;
  for (const TensorRecord& tensor : manifest.tensors) {
    chunks += tensor.chunks.size();
    if (!tensor.alias_of.empty()) ++tied;
  }
  const auto hint = [](const std::string& text) { return text.empty() ? "-" : printable(text); };
  std::string text = text_table(
      {{"step", std::to_string(manifest.step)},
       {"epoch", std::to_string(manifest.epoch)},
       {"attempt", hex(manifest.attempt)},
       {"folder", path},
       {"model", hint(manifest.model)},
       {"layout", hint(manifest.layout)},
       {"size", human_size(bytes) + " in " + counted(manifest.files.size(), "file")},
       {"tensors", std::to_string(manifest.tensors.size()) + " in " + counted(chunks, "chunk") +
                       (tied > 0 ? ", " + std::to_string(tied) + " of them tied" : "")}},
      {});
  if (!manifest.counters.empty()) {
    Rows counters = {{"counter", "value"}};
    for (const auto& [name, value] : manifest.counters) {
      counters.push_back({printable(name), std::to_string(value)});
    }
    text += "\n" + text_table(counters, {Align::kLeft, Align::kRight}, "  ");
  }
  return text + "\n" + files_table(manifest);
}

std::string print_tensors(const Manifest& manifest) {
  Rows rows = {{"tensor", "type", "shape", "chunk", "size", "file", "offset"}};
  for (const TensorRecord& tensor : manifest.tensors) {
    const std::vector<std::string> head = {printable(tensor.name),
                                           std::string(checkpoint::to_string(tensor.type)),
                                           shape_text(tensor.shape)};
    if (tensor.chunks.empty()) {
      const bool is_tied = !tensor.alias_of.empty();
      rows.push_back(
          {head[0], head[1], head[2], is_tied ? "tied to " + printable(tensor.alias_of) : "none"});
    }
    for (size_t c = 0; c < tensor.chunks.size(); ++c) {
      const ChunkRecord& chunk = tensor.chunks[c];
      std::vector<std::string> row = c == 0 ? head : std::vector<std::string>(head.size());
      row.insert(row.end(), {checkpoint::to_string(chunk.box), human_size(chunk.bytes),
                             manifest.files[chunk.file].name, std::to_string(chunk.offset)});
      rows.push_back(std::move(row));
    }
  }
  const auto left = Align::kLeft;
  return text_table(rows, {left, left, left, left, Align::kRight, left, Align::kRight}, "  ");
}

}  // namespace perdure::apps
