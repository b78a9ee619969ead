#include "base/buffer_pool.h"

#include <utility>

namespace perdure::base {

PooledBuffer::PooledBuffer(PooledBuffer&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}

PooledBuffer& PooledBuffer::operator=(PooledBuffer&& other) noexcept {
  if (this == &other) return *this;
  give_back();
  pool_ = std::exchange(other.pool_, nullptr);
  bytes_ = std::exchange(other.bytes_, {});
  return *this;
}

PooledBuffer::~PooledBuffer() { give_back(); }

void PooledBuffer::give_back() {
  if (pool_ != nullptr) pool_->give_back(bytes_);
  pool_ = nullptr;
}

Result<std::unique_ptr<BufferPool>> BufferPool::create(Arena& arena, const Options& options) {
  CHECK_GT(options.buffer_count, 0u);
  CHECK_GT(options.buffer_bytes, 0u);
  std::vector<std::span<std::byte>> free;
  for (size_t i = 0; i < options.buffer_count; ++i) {
    auto bytes = arena.allocate(options.buffer_bytes, options.alignment);
    if (!bytes.is_ok()) {
      return bytes.status().annotate("buffer " + std::to_string(i) + " of " +
                                     std::to_string(options.buffer_count));
    }
    free.push_back(*bytes);
  }
  return std::unique_ptr<BufferPool>(new BufferPool(options, std::move(free)));
}

BufferPool::~BufferPool() {
  CHECK_EQ(free_count(), options_.buffer_count) << "a buffer outlives its pool";
}

Result<PooledBuffer> BufferPool::acquire() {
  MutexLock lock(mutex_);
  if (free_.empty()) {
    return resource_exhausted("buffer pool: all " + std::to_string(options_.buffer_count) +
                              " buffers of " + std::to_string(options_.buffer_bytes) +
                              " bytes are in use");
  }
  const std::span<std::byte> bytes = free_.back();
  free_.pop_back();
  return PooledBuffer(this, bytes);
}

size_t BufferPool::free_count() const {
  MutexLock lock(mutex_);
  return free_.size();
}

void BufferPool::give_back(std::span<std::byte> bytes) {
  MutexLock lock(mutex_);
  CHECK_LT(free_.size(), options_.buffer_count);
  free_.push_back(bytes);
}

}  // namespace perdure::base
