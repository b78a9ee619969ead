#pragma once
// How a file is cut into blocks. Pure.
//
// With O_DIRECT offset, length and memory of a block must be aligned. What is not goes through a
// bounce buffer (memory: null):
//
//   file     |----|----|----|----|----|----|      alignment
//   wanted      [==================]
//   blocks   <bounce><---- direct ---><bounce>    when memory and file fit together in the middle
//   else     <----------- bounce ------------>

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/block_files.h"

namespace perdure::checkpoint::blocks {

struct Alignment {
  uint32_t offset = 1;  // of file offsets and lengths; both are powers of two up to 4096
  uint32_t memory = 1;
};

struct Block {
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;   // moved, with padding
  uint64_t needed = 0;  // at least these, or the file is too short
  std::byte* memory = nullptr;
  size_t first_range = 0;  // of a read: the first of the ranges that have a part of a bounced block
};

// Writes only read `memory`. The file has `file_bytes` and the padding of its last block.
std::vector<Block> plan_write(base::ByteSpan image, uint64_t file_bytes, Alignment alignment,
                              uint64_t block_bytes);
// `ranges` are ascending and do not overlap (CHECK).
std::vector<Block> plan_read(std::span<const ReadRange> ranges, Alignment alignment,
                             uint64_t block_bytes);

// Between a bounce buffer and what the block stands for.
void fill_bounce(const Block& block, base::ByteSpan image, uint64_t file_bytes, std::byte* bounce);
void empty_bounce(const Block& block, std::span<const ReadRange> ranges, const std::byte* bounce);

}  // namespace perdure::checkpoint::blocks
