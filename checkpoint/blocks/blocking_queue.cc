#include <unistd.h>

#include <cerrno>
#include <deque>

#include "base/check.h"
#include "checkpoint/blocks/block_queue.h"

namespace perdure::checkpoint::blocks {
namespace {

class BlockingQueue final : public BlockQueue {
 public:
  void submit(const Transfer& transfer) override { waiting_.push_back(transfer); }

  Completion wait() override {
    CHECK(!waiting_.empty()) << "no block is under way";
    const Transfer next = waiting_.front();
    waiting_.pop_front();
    const off_t offset = static_cast<off_t>(next.offset);
    const ssize_t moved = next.direction == Direction::kWrite
                              ? ::pwrite(next.fd, next.memory, next.bytes, offset)
                              : ::pread(next.fd, next.memory, next.bytes, offset);
    return {.id = next.id, .result = moved < 0 ? -errno : moved};
  }

 private:
  std::deque<Transfer> waiting_;
};

}  // namespace

std::unique_ptr<BlockQueue> make_blocking_queue() { return std::make_unique<BlockingQueue>(); }

}  // namespace perdure::checkpoint::blocks
