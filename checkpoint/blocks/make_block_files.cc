#include "base/log.h"
#include "checkpoint/block_files.h"
#include "checkpoint/blocks/queue_files.h"

namespace perdure::checkpoint {  // tidy: allow namespace because block_files.h declares them there

base::Result<std::unique_ptr<BlockFiles>> make_uring_files(const BlockOptions& options) {
  ASSIGN_OR_RETURN(auto queue,
                   blocks::make_uring_queue(static_cast<uint32_t>(options.blocks_in_flight)));
  return std::unique_ptr<BlockFiles>(std::make_unique<blocks::QueueFiles>(
      std::move(queue), blocks::QueueFiles::Names{.queue = "io_uring"}, options));
}

std::unique_ptr<BlockFiles> make_blocking_files(const BlockOptions& options) {
  return std::make_unique<blocks::QueueFiles>(
      blocks::make_blocking_queue(), blocks::QueueFiles::Names{.queue = "blocking"}, options);
}

std::unique_ptr<BlockFiles> make_block_files(const BlockOptions& options) {
  auto files = make_uring_files(options);
  if (files.is_ok()) return std::move(files).value();
  LOG_INFO("checkpoint", "files are moved by blocking calls", KV("why", files.status().message()));
  return std::make_unique<blocks::QueueFiles>(
      blocks::make_blocking_queue(),
      blocks::QueueFiles::Names{.queue = "blocking", .why = files.status().message()}, options);
}

}  // namespace perdure::checkpoint
