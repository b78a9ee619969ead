#include "checkpoint/blocks/block_plan.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace perdure::checkpoint::blocks {
namespace {

// Less than this in the middle of a range is cheaper to copy than to read in three parts.
constexpr uint64_t kDirectBytesMin = 64 << 10;

uint64_t round_down(uint64_t n, uint64_t to) { return n & ~(to - 1); }
uint64_t round_up(uint64_t n, uint64_t to) { return round_down(n + to - 1, to); }

bool is_aligned(const std::byte* memory, uint64_t to) {
  return (reinterpret_cast<uintptr_t>(memory) & (to - 1)) == 0;
}

void check(Alignment alignment, uint64_t block_bytes) {
  for (const uint64_t a : {alignment.offset, alignment.memory}) {
    CHECK(a > 0 && (a & (a - 1)) == 0 && block_bytes % a == 0) << "alignment " << a;
  }
}

class ReadPlan {
 public:
  ReadPlan(Alignment alignment, uint64_t block_bytes)
      : alignment_(alignment), block_bytes_(block_bytes) {}

  void add(const ReadRange& range, size_t index) {
    const uint64_t begin = range.offset;
    const uint64_t end = begin + range.to.size();
    const uint64_t inner_begin = round_up(begin, alignment_.offset);
    const uint64_t inner_end = round_down(end, alignment_.offset);
    if (!goes_direct(range, inner_begin, inner_end)) {
      add_bounced(begin, end, index);
      return;
    }
    if (begin < inner_begin) add_bounced(begin, inner_begin, index);
    for (uint64_t at = inner_begin; at < inner_end; at += block_bytes_) {
      const uint64_t bytes = std::min(block_bytes_, inner_end - at);
      blocks_.push_back({.offset = at,
                         .bytes = bytes,
                         .needed = bytes,
                         .memory = range.to.data() + (at - begin),
                         .first_range = index});
    }
    if (inner_end < end) add_bounced(inner_end, end, index);
  }

  std::vector<Block> take() { return std::move(blocks_); }

 private:
  bool goes_direct(const ReadRange& range, uint64_t inner_begin, uint64_t inner_end) const {
    if (inner_end <= inner_begin) return false;
    if (alignment_.offset == 1 && alignment_.memory == 1) return true;
    return inner_end - inner_begin >= kDirectBytesMin &&
           is_aligned(range.to.data() + (inner_begin - range.offset), alignment_.memory);
  }

  void add_bounced(uint64_t begin, uint64_t end, size_t index) {
    uint64_t at = round_down(begin, alignment_.offset);
    const uint64_t padded_end = round_up(end, alignment_.offset);
    if (!blocks_.empty() && blocks_.back().memory == nullptr) {
      Block& last = blocks_.back();
      const uint64_t last_end = last.offset + last.bytes;
      if (at <= last_end && padded_end - last.offset <= block_bytes_) {
        last.bytes = padded_end - last.offset;
        last.needed = end - last.offset;
        return;
      }
    }
    for (; at < padded_end; at += block_bytes_) {
      const uint64_t bytes = std::min(block_bytes_, padded_end - at);
      blocks_.push_back({.offset = at,
                         .bytes = bytes,
                         .needed = std::min(bytes, end - at),
                         .memory = nullptr,
                         .first_range = index});
    }
  }

  const Alignment alignment_;
  const uint64_t block_bytes_;
  std::vector<Block> blocks_;
};

}  // namespace

std::vector<Block> plan_write(base::ByteSpan image, uint64_t file_bytes, Alignment alignment,
                              uint64_t block_bytes) {
  check(alignment, block_bytes);
  CHECK_LE(file_bytes, image.size());
  std::vector<Block> blocks;
  const bool fits = is_aligned(image.data(), alignment.memory);
  const auto add = [&](uint64_t at, uint64_t end) {
    const uint64_t bytes = round_up(end - at, alignment.offset);
    const bool direct = fits && at + bytes <= image.size();
    blocks.push_back({.offset = at,
                      .bytes = bytes,
                      .needed = bytes,
                      .memory = direct ? const_cast<std::byte*>(image.data()) + at : nullptr});
  };
  for (uint64_t at = 0; at < file_bytes; at += block_bytes) {
    const uint64_t end = std::min(at + block_bytes, file_bytes);
    const uint64_t aligned_end = round_down(end, alignment.offset);
    // Only the end of the last block is copied when the image has no padding for it.
    const bool is_cut = fits && at < aligned_end && aligned_end < end &&
                        round_up(end, alignment.offset) > image.size();
    add(at, is_cut ? aligned_end : end);
    if (is_cut) add(aligned_end, end);
  }
  return blocks;
}

std::vector<Block> plan_read(std::span<const ReadRange> ranges, Alignment alignment,
                             uint64_t block_bytes) {
  check(alignment, block_bytes);
  ReadPlan plan(alignment, block_bytes);
  uint64_t end = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    CHECK_GE(ranges[i].offset, end) << "range " << i;
    end = ranges[i].offset + ranges[i].to.size();
    if (!ranges[i].to.empty()) plan.add(ranges[i], i);
  }
  return plan.take();
}

void fill_bounce(const Block& block, base::ByteSpan image, uint64_t file_bytes, std::byte* bounce) {
  const uint64_t bytes = std::min(block.bytes, file_bytes - block.offset);
  std::memcpy(bounce, image.data() + block.offset, bytes);
  std::memset(bounce + bytes, 0, block.bytes - bytes);
}

void empty_bounce(const Block& block, std::span<const ReadRange> ranges, const std::byte* bounce) {
  const uint64_t block_end = block.offset + block.needed;
  for (size_t i = block.first_range; i < ranges.size() && ranges[i].offset < block_end; ++i) {
    const uint64_t begin = std::max(ranges[i].offset, block.offset);
    const uint64_t end = std::min(ranges[i].offset + ranges[i].to.size(), block_end);
    if (begin >= end) continue;
    std::memcpy(ranges[i].to.data() + (begin - ranges[i].offset), bounce + (begin - block.offset),
                end - begin);
  }
}

}  // namespace perdure::checkpoint::blocks
