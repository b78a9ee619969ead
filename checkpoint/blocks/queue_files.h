#pragma once
// BlockFiles over a BlockQueue: how files are cut, what short and failed blocks mean.

#include <memory>
#include <string>

#include "base/buffer.h"
#include "checkpoint/block_files.h"
#include "checkpoint/blocks/block_file.h"
#include "checkpoint/blocks/block_queue.h"

namespace perdure::checkpoint::blocks {

class QueueFiles final : public BlockFiles {
 public:
  struct Names {
    std::string queue;     // "io_uring", "blocking"
    std::string why = {};  // it is not the other one; may be empty
  };
  QueueFiles(std::unique_ptr<BlockQueue> queue, Names names, const BlockOptions& options);

  base::Status write(const WriteFile& request) override;
  base::Status read(std::string_view path, std::span<const ReadRange> ranges,
                    const std::atomic<bool>* leave) override;
  std::string mode() const override;

 private:
  class Pass;
  base::Result<std::byte*> bounce(size_t slot);
  base::Status read_file(BlockFile& file, std::span<const ReadRange> ranges,
                         const std::atomic<bool>* leave);

  const std::unique_ptr<BlockQueue> queue_;
  const Names names_;
  const BlockOptions options_;
  ToldFileSystems told_;
  std::string file_mode_ = "no file yet";
  // One block per slot, made when the first file needs it: images and slabs are aligned.
  std::unique_ptr<base::Arena> bounce_;
  std::byte* bounce_begin_ = nullptr;
};

}  // namespace perdure::checkpoint::blocks
