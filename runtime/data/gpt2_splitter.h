#pragma once
// Splits text into the pieces inside which GPT-2 merges bytes. The published pattern is
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// written here as a hand-made scanner: one pass, no backtracking. A byte that is not part of valid
// UTF-8 counts as a character of no class.

#include <cstddef>
#include <string_view>

namespace perdure::runtime::data {

// Length in bytes of the first piece of `text`, which is not empty. The pieces of a text are found
// by cutting off one after the other; each has at least one byte.
size_t gpt2_piece_bytes(std::string_view text);

// See Tokenizer::safe_cut: before the last ASCII blank that follows a visible ASCII character.
size_t gpt2_safe_cut(std::string_view text);

}  // namespace perdure::runtime::data
