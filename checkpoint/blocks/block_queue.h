#pragma once
// BlockQueue: moves blocks between memory and open files, several at once. It decides nothing: what
// a short or a failed transfer means is for queue_files.h to say.

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace perdure::checkpoint::blocks {

enum class Direction { kRead, kWrite };

struct Transfer {
  Direction direction = Direction::kRead;
  int fd = -1;
  std::byte* memory = nullptr;  // stays until the completion was taken; kWrite only reads it
  uint64_t offset = 0;          // in the file
  uint32_t bytes = 0;
  uint32_t id = 0;  // of the caller, given back
};

struct Completion {
  uint32_t id = 0;
  int64_t result = 0;  // bytes moved, or a negative errno
};

// One thread at a time.
class BlockQueue {
 public:
  virtual ~BlockQueue() = default;
  // At most as many as the queue was made for may be under way (CHECK).
  virtual void submit(const Transfer& transfer) = 0;
  // The next completion, in any order. Something must be under way (CHECK). Blocks.
  virtual Completion wait() = 0;
};

// Moves a block in wait(), one at a time, in the order of submission.
std::unique_ptr<BlockQueue> make_blocking_queue();
// kUnimplemented: this kernel or this container has no io_uring for us; the text says why.
base::Result<std::unique_ptr<BlockQueue>> make_uring_queue(uint32_t in_flight_max);

}  // namespace perdure::checkpoint::blocks
