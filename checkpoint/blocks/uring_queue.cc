#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "checkpoint/blocks/block_queue.h"

namespace perdure::checkpoint::blocks {
namespace {

// A kernel that is short of memory is asked again; after so many times it never will have any.
constexpr int kBusyTriesMax = 1'000'000;

class UringQueue final : public BlockQueue {
 public:
  UringQueue() = default;
  UringQueue(const UringQueue&) = delete;
  UringQueue& operator=(const UringQueue&) = delete;
  ~UringQueue() override {
    if (!is_open_) return;
    CHECK_EQ(in_flight_, 0u) << "the kernel still uses memory of blocks";
    io_uring_queue_exit(&ring_);
  }

  // 0, or an errno.
  int open(uint32_t in_flight_max) {
    const int error = -io_uring_queue_init(in_flight_max, &ring_, 0);
    is_open_ = error == 0;
    in_flight_max_ = in_flight_max;
    return error;
  }

  void submit(const Transfer& transfer) override {
    CHECK_LT(in_flight_, in_flight_max_);
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    CHECK(entry != nullptr) << "the ring is full";
    if (transfer.direction == Direction::kWrite) {
      io_uring_prep_write(entry, transfer.fd, transfer.memory, transfer.bytes, transfer.offset);
    } else {
      io_uring_prep_read(entry, transfer.fd, transfer.memory, transfer.bytes, transfer.offset);
    }
    io_uring_sqe_set_data64(entry, transfer.id);
    ++in_flight_;
  }

  Completion wait() override {
    CHECK_GT(in_flight_, 0u) << "no block is under way";
    // What is new goes to the kernel before anything else, so that the disk never waits for us.
    if (io_uring_sq_ready(&ring_) > 0) enter(0);
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) != 0) enter(1);
    const Completion done = {.id = static_cast<uint32_t>(io_uring_cqe_get_data64(entry)),
                             .result = entry->res};
    io_uring_cqe_seen(&ring_, entry);
    --in_flight_;
    return done;
  }

 private:
  // Hands over what is queued, and waits for `completions`. A ring that fails otherwise can not be
  // left either: blocks under way still use memory of the caller.
  void enter(unsigned completions) {
    const int result = io_uring_submit_and_wait(&ring_, completions);
    if (result >= 0) {
      busy_tries_ = 0;
      return;
    }
    const bool passes =
        result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM;
    CHECK(passes && ++busy_tries_ < kBusyTriesMax)
        << "io_uring_enter: " << std::strerror(-result) << ", " << in_flight_ << " under way";
  }

  io_uring ring_ = {};
  bool is_open_ = false;
  uint32_t in_flight_max_ = 0;
  uint32_t in_flight_ = 0;
  int busy_tries_ = 0;
};

}  // namespace

base::Result<std::unique_ptr<BlockQueue>> make_uring_queue(uint32_t in_flight_max) {
  auto queue = std::make_unique<UringQueue>();
  const int error = queue->open(in_flight_max);
  if (error == EPERM || error == EACCES) {
    return base::unimplemented("io_uring is not allowed: " + std::string(std::strerror(error)));
  }
  if (error != 0) {
    return base::unimplemented("no io_uring: " + std::string(std::strerror(error)));
  }
  return std::unique_ptr<BlockQueue>(std::move(queue));
}

}  // namespace perdure::checkpoint::blocks
