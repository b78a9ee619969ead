#include "checkpoint/blocks/queue_files.h"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/check.h"

namespace perdure::checkpoint::blocks {
namespace {

constexpr uint64_t kBlockUnit = 4096;
constexpr size_t kInFlightMax = 4096;
// Of one block, without a byte moved: EINTR and EAGAIN pass.
constexpr int kTriesMax = 10'000;

}  // namespace

// Moves the blocks of one file. Ends when nothing is under way any more, whatever happened: the
// kernel must not write into memory that its owner has back.
class QueueFiles::Pass {
 public:
  // Called before a block is written from, or after one was read into, its bounce buffer.
  using Copy = std::function<void(const Block&, std::byte* bounce)>;
  struct Options {
    Direction direction = Direction::kRead;
    const std::atomic<bool>* leave = nullptr;
    Copy copy;
    std::function<void(uint64_t bytes_done)> on_progress;
  };

  Pass(QueueFiles& files, BlockFile& file, Options options)
      : files_(files), file_(file), options_(std::move(options)) {
    for (size_t i = files_.options_.blocks_in_flight; i > 0; --i) free_.push_back(i - 1);
    slots_.resize(free_.size());
  }

  base::Status run(const std::vector<Block>& blocks) {
    size_t next = 0;
    uint64_t done_bytes = 0;
    while (true) {
      if (status_.is_ok() && options_.leave != nullptr && options_.leave->load()) {
        status_ = base::cancelled(verb() + " " + file_.path() + ": told to leave");
      }
      while (status_.is_ok() && next < blocks.size() && !free_.empty()) begin(blocks[next++]);
      if (free_.size() == slots_.size()) return status_;
      const Completion completion = files_.queue_->wait();
      Slot& slot = slots_.at(completion.id);
      if (!settle(slot, completion.result)) {
        submit(completion.id);
        continue;
      }
      free_.push_back(completion.id);
      if (!status_.is_ok()) continue;
      if (options_.direction == Direction::kRead && slot.block.memory == nullptr) {
        options_.copy(slot.block, slot.memory);
      }
      done_bytes += slot.block.needed;
      if (options_.on_progress) options_.on_progress(done_bytes);
    }
  }

 private:
  struct Slot {
    Block block;
    std::byte* memory = nullptr;
    uint64_t done = 0;
    int tries = 0;
    bool is_direct = false;
  };

  std::string verb() const { return options_.direction == Direction::kRead ? "read" : "write"; }

  void begin(const Block& block) {
    const size_t id = free_.back();
    std::byte* memory = block.memory;
    if (memory == nullptr) {
      auto bounce = files_.bounce(id);
      if (!bounce.is_ok()) {
        status_ = bounce.status().annotate(verb() + " " + file_.path());
        return;
      }
      memory = *bounce;
      if (options_.direction == Direction::kWrite) options_.copy(block, memory);
    }
    free_.pop_back();
    slots_[id] = {.block = block, .memory = memory};
    submit(id);
  }

  void submit(size_t id) {
    Slot& slot = slots_[id];
    slot.is_direct = file_.is_direct();
    files_.queue_->submit({.direction = options_.direction,
                           .fd = file_.fd(),
                           .memory = slot.memory + slot.done,
                           .offset = slot.block.offset + slot.done,
                           .bytes = static_cast<uint32_t>(slot.block.bytes - slot.done),
                           .id = static_cast<uint32_t>(id)});
  }

  // Whether the block is done, well or with an error; else the rest of it is to be moved.
  bool settle(Slot& slot, int64_t result) {
    if (!status_.is_ok()) return true;
    status_ = result < 0 ? on_error(slot, static_cast<int>(-result))
                         : on_moved(slot, static_cast<uint64_t>(result));
    return !status_.is_ok() || slot.done >= slot.block.needed;
  }

  base::Status on_error(Slot& slot, int number) {
    if ((number == EINTR || number == EAGAIN) && ++slot.tries < kTriesMax) {
      return base::Status::ok();
    }
    if (number == EINVAL && slot.is_direct) {
      return file_.go_buffered("it refuses a direct block", files_.told_);
    }
    return file_.error(number, verb(), slot.block.offset + slot.done);
  }

  base::Status on_moved(Slot& slot, uint64_t bytes) {
    slot.tries = 0;
    if (slot.done + bytes >= slot.block.needed) {
      slot.done += bytes;
      return base::Status::ok();
    }
    // A direct transfer goes on at the alignment: what is beyond it is moved again.
    const uint64_t unit = slot.is_direct ? file_.alignment().offset : 1;
    const uint64_t done = (slot.done + bytes) & ~(unit - 1);
    if (done > slot.done) {
      slot.done = done;
      return base::Status::ok();
    }
    const uint64_t at = slot.block.offset + slot.done;
    if (options_.direction == Direction::kWrite) {
      return base::internal("write " + file_.path() + " at byte " + std::to_string(at) +
                            ": the file system takes " + std::to_string(bytes) + " bytes of " +
                            std::to_string(slot.block.bytes - slot.done));
    }
    return base::data_loss("read " + file_.path() + ": it ends at byte " +
                           std::to_string(at + bytes) + ", " +
                           std::to_string(slot.block.offset + slot.block.needed) + " are needed");
  }

  QueueFiles& files_;
  BlockFile& file_;
  const Options options_;
  std::vector<Slot> slots_;
  std::vector<size_t> free_;
  base::Status status_;
};

QueueFiles::QueueFiles(std::unique_ptr<BlockQueue> queue, Names names, const BlockOptions& options)
    : queue_(std::move(queue)), names_(std::move(names)), options_(options) {
  CHECK(options.block_bytes > 0 && options.block_bytes % kBlockUnit == 0 &&
        options.block_bytes <= (size_t{1} << 30))
      << "block_bytes " << options.block_bytes;
  CHECK(options.blocks_in_flight > 0 && options.blocks_in_flight <= kInFlightMax)
      << "blocks_in_flight " << options.blocks_in_flight;
}

base::Result<std::byte*> QueueFiles::bounce(size_t slot) {
  if (bounce_ == nullptr) {
    const size_t bytes = options_.block_bytes * options_.blocks_in_flight;
    // Only what is used becomes present: often it is the end of one file.
    ASSIGN_OR_RETURN(base::Arena arena, base::Arena::create(bytes, base::Prefault::kNone));
    ASSIGN_OR_RETURN(const auto memory, arena.allocate(bytes, kBlockUnit));
    bounce_ = std::make_unique<base::Arena>(std::move(arena));
    bounce_begin_ = memory.data();
  }
  return bounce_begin_ + slot * options_.block_bytes;
}

base::Status QueueFiles::write(const WriteFile& request) {
  CHECK_LE(request.file_bytes, request.image.size());
  ASSIGN_OR_RETURN(BlockFile file,
                   BlockFile::open_to_write(request.path, request.file_bytes, told_));
  const uint64_t file_bytes = request.file_bytes;
  Pass::Options options = {.direction = Direction::kWrite, .leave = request.leave};
  options.copy = [&](const Block& block, std::byte* bounce) {
    fill_bounce(block, request.image, file_bytes, bounce);
  };
  if (request.on_progress) {
    options.on_progress = [&](uint64_t done) { request.on_progress(std::min(done, file_bytes)); };
  }
  Pass pass(*this, file, std::move(options));
  const base::Status status =
      pass.run(plan_write(request.image, file_bytes, file.alignment(), options_.block_bytes));
  file_mode_ = file.mode();
  RETURN_IF_ERROR(status);
  return file.finish(file_bytes);
}

base::Status QueueFiles::read(std::string_view path, std::span<const ReadRange> ranges,
                              const std::atomic<bool>* leave) {
  ASSIGN_OR_RETURN(BlockFile file, BlockFile::open_to_read(path, told_));
  const base::Status status = read_file(file, ranges, leave);
  file_mode_ = file.mode();
  return status;
}

base::Status QueueFiles::read_file(BlockFile& file, std::span<const ReadRange> ranges,
                                   const std::atomic<bool>* leave) {
  const std::vector<Block> blocks = plan_read(ranges, file.alignment(), options_.block_bytes);
  const uint64_t needed = blocks.empty() ? 0 : blocks.back().offset + blocks.back().needed;
  if (needed > file.size_bytes()) {
    return base::data_loss("read " + file.path() + ": it has " + std::to_string(file.size_bytes()) +
                           " bytes, " + std::to_string(needed) + " are needed");
  }
  Pass::Options options = {.direction = Direction::kRead, .leave = leave};
  options.copy = [&](const Block& block, std::byte* bounce) {
    empty_bounce(block, ranges, bounce);
  };
  return Pass(*this, file, std::move(options)).run(blocks);
}

std::string QueueFiles::mode() const {
  const std::string mode = names_.queue + ", " + file_mode_;
  return names_.why.empty() ? mode : mode + " (" + names_.why + ")";
}

}  // namespace perdure::checkpoint::blocks
