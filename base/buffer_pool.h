#pragma once
// BufferPool: a fixed number of equal buffers, cut from an arena once at start.

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/mutex.h"
#include "base/status.h"

namespace perdure::base {

class BufferPool;

// One buffer taken from a pool; gives it back when destroyed. Contents are what the last user left.
class PooledBuffer {
 public:
  PooledBuffer(PooledBuffer&& other) noexcept;
  PooledBuffer& operator=(PooledBuffer&& other) noexcept;
  ~PooledBuffer();

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class BufferPool;
  PooledBuffer(BufferPool* pool, std::span<std::byte> bytes) : pool_(pool), bytes_(bytes) {}
  void give_back();

  BufferPool* pool_;
  std::span<std::byte> bytes_;
};

// All threads may acquire and give back. The arena and the pool outlive every buffer.
class BufferPool {
 public:
  struct Options {
    size_t buffer_count = 0;
    size_t buffer_bytes = 0;
    size_t alignment = 4096;  // fits O_DIRECT
  };

  // Takes all the memory now: kResourceExhausted when the arena is too small.
  static Result<std::unique_ptr<BufferPool>> create(Arena& arena, const Options& options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Never waits: kResourceExhausted when all are in use, which the caller treats as back pressure.
  Result<PooledBuffer> acquire() EXCLUDES(mutex_);

  size_t free_count() const EXCLUDES(mutex_);
  size_t buffer_count() const { return options_.buffer_count; }
  size_t buffer_bytes() const { return options_.buffer_bytes; }

 private:
  friend class PooledBuffer;
  BufferPool(const Options& options, std::vector<std::span<std::byte>> free)
      : options_(options), free_(std::move(free)) {}
  void give_back(std::span<std::byte> bytes) EXCLUDES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  std::vector<std::span<std::byte>> free_ GUARDED_BY(mutex_);
};

}  // namespace perdure::base
