#include "runtime/engine/block_pool.h"

namespace perdure::runtime::engine {
namespace {

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

base::Result<std::vector<std::span<std::byte>>> BlockPool::take(std::span<const size_t> sizes) {
  std::multimap<size_t, std::byte*> left = free_;
  std::vector<std::span<std::byte>> blocks(sizes.size());
  size_t missing = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto found = left.find(padded(sizes[i]));
    if (found == left.end()) {
      missing += padded(sizes[i]);
    } else {
      blocks[i] = {found->second, sizes[i]};
      left.erase(found);
    }
  }
  if (missing > 0) {
    ASSIGN_OR_RETURN(auto slab, device_.allocate(missing));
    std::byte* at = slab->data();
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (blocks[i].data() != nullptr) continue;
      blocks[i] = {at, sizes[i]};
      at += padded(sizes[i]);
    }
    slabs_.push_back(std::move(slab));
  }
  free_ = std::move(left);
  return blocks;
}

void BlockPool::give(std::span<std::byte> block) {
  free_.emplace(padded(block.size()), block.data());
}

size_t BlockPool::allocated_bytes() const {
  size_t total = 0;
  for (const auto& slab : slabs_) total += slab->size_bytes();
  return total;
}

base::Result<kernels::DeviceBuffer*> GrowingBuffer::reserve(size_t bytes) {
  if (buffer_ == nullptr || buffer_->size_bytes() < bytes) {
    buffer_.reset();  // first, so that both are never there at the same time
    ASSIGN_OR_RETURN(buffer_, device_.allocate(bytes));
  }
  return buffer_.get();
}

}  // namespace perdure::runtime::engine
