// The disk below SimFiles: space, sectors, and what is left of them when the power goes.

#include <algorithm>
#include <utility>

#include "chaos/sim_node.h"

namespace perdure::chaos {

using base::ByteSpan;
using base::FileKind;
using base::Status;

namespace {

Status no_space(uint64_t capacity_bytes) {
  return base::resource_exhausted("no space left on the simulated disk of " +
                                  std::to_string(capacity_bytes) + " bytes");
}

}  // namespace

// A write that does not fit fills the disk first, as real ones do.
Status SimFiles::write(Node& node, uint64_t offset, ByteSpan bytes) {
  const uint64_t end = offset + bytes.size();
  const uint64_t grown_bytes = end > node.data.size() ? end - node.data.size() : 0;
  const uint64_t free_bytes =
      options_.capacity_bytes - std::min(options_.capacity_bytes, used_bytes_);
  if (grown_bytes > free_bytes) {
    const uint64_t fitting_end = node.data.size() + free_bytes;
    const uint64_t fitting_bytes = fitting_end > offset ? fitting_end - offset : 0;
    if (fitting_bytes > 0) CHECK(write(node, offset, bytes.first(fitting_bytes)).is_ok());
    return no_space(options_.capacity_bytes);
  }
  if (bytes.empty()) return Status::ok();
  if (grown_bytes > 0) RETURN_IF_ERROR(resize(node, end));
  std::copy(bytes.begin(), bytes.end(), node.data.begin() + static_cast<ptrdiff_t>(offset));
  for (uint64_t s = offset / options_.sector_bytes; s <= (end - 1) / options_.sector_bytes; ++s) {
    node.dirty_sectors.insert(s);
  }
  return Status::ok();
}

Status SimFiles::resize(Node& node, uint64_t size_bytes) {
  const uint64_t old_bytes = node.is_linked ? node.data.size() : size_bytes;
  if (size_bytes > old_bytes && used_bytes_ + size_bytes - old_bytes > options_.capacity_bytes) {
    return no_space(options_.capacity_bytes);
  }
  used_bytes_ += size_bytes - old_bytes;
  node.data.resize(size_bytes);
  return Status::ok();
}

void SimFiles::unlink(Node& node) {
  used_bytes_ -= node.data.size();
  node.is_linked = false;
}

void SimFiles::sync_contents(Node& node) {
  node.durable_data = node.data;
  node.dirty_sectors.clear();
}

void SimFiles::forget_unsynced(Node& node) {
  if (node.kind == FileKind::kDirectory) {
    if (!random_.bernoulli(options_.keep_unsynced)) node.children = node.durable_children;
    node.durable_children = node.children;
    for (const auto& [name, child] : node.children) forget_unsynced(*child);
    return;
  }
  // The size is old or new as a whole; where it is new and the sector is not, there are zeros.
  std::vector<std::byte> after = node.durable_data;
  if (after.size() != node.data.size() && random_.bernoulli(options_.keep_unsynced)) {
    after.resize(node.data.size());
  }
  for (const uint64_t sector : node.dirty_sectors) {
    const size_t first = sector * options_.sector_bytes;
    const size_t last = std::min({first + options_.sector_bytes, after.size(), node.data.size()});
    if (first >= last || !random_.bernoulli(options_.keep_unsynced)) continue;
    std::copy(node.data.begin() + static_cast<ptrdiff_t>(first),
              node.data.begin() + static_cast<ptrdiff_t>(last),
              after.begin() + static_cast<ptrdiff_t>(first));
  }
  node.data = std::move(after);
  node.is_linked = true;
  used_bytes_ += node.data.size();
  sync_contents(node);
}

void SimFiles::lose_power() {
  ++connection_;
  used_bytes_ = 0;
  forget_unsynced(*root_);
}

Status SimFiles::flip_bit(const BitFlip& flip) {
  const NodePtr node = find(flip.path);
  if (node == nullptr) return base::not_found(std::string(flip.path) + " does not exist");
  if (flip.offset >= node->data.size()) {
    return base::invalid_argument(std::string(flip.path) + " is shorter than " +
                                  std::to_string(flip.offset) + " bytes");
  }
  const std::byte mask = std::byte{1} << flip.bit;
  node->data[flip.offset] ^= mask;
  if (flip.offset < node->durable_data.size()) node->durable_data[flip.offset] ^= mask;
  return Status::ok();
}

}  // namespace perdure::chaos
