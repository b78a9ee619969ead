#pragma once
// BlockPool: device memory in blocks that are used again and never given back. What is taken
// together comes from one buffer, because a buffer costs a call and huge pages need large ones.
//
// A freed block serves only a request of its own size: tensors of a model have few sizes, so
// nothing is gained by cutting blocks, and the pool stays below one block for each tensor of the
// model.
//
// Threads: the engine thread.

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace perdure::runtime::engine {

class BlockPool {
 public:
  explicit BlockPool(kernels::Device& device) : device_(device) {}

  // One block per size, each on a 64-byte border. What lies in a used block is undefined.
  // kResourceExhausted: nothing was taken.
  base::Result<std::vector<std::span<std::byte>>> take(std::span<const size_t> sizes);
  void give(std::span<std::byte> block);
  size_t allocated_bytes() const;

 private:
  kernels::Device& device_;
  std::vector<std::unique_ptr<kernels::DeviceBuffer>> slabs_;
  std::multimap<size_t, std::byte*> free_;  // by padded size
};

// One buffer that is made anew only when it is too small. Its content is undefined when reserved.
class GrowingBuffer {
 public:
  explicit GrowingBuffer(kernels::Device& device) : device_(device) {}
  // The buffer before ends: whoever used it is gone.
  base::Result<kernels::DeviceBuffer*> reserve(size_t bytes);
  size_t allocated_bytes() const { return buffer_ == nullptr ? 0 : buffer_->size_bytes(); }

 private:
  kernels::Device& device_;
  std::unique_ptr<kernels::DeviceBuffer> buffer_;
};

}  // namespace perdure::runtime::engine
