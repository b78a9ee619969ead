#pragma once
// Boxes: which part of a tensor is where. Row-major; a tensor without dimensions has one element
// and the box {} {}.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace perdure::checkpoint {

using Shape = std::vector<int64_t>;

struct Box {
  std::vector<int64_t> offset;  // in the whole tensor
  std::vector<int64_t> size;    // a 0 makes it empty
  friend bool operator==(const Box&, const Box&) = default;
};

Box whole(const Shape& shape);
bool is_empty(const Box& box);
bool lies_in(const Box& box, const Shape& shape);  // also false when their ranks differ
// kInvalidArgument: overflow or a negative size.
base::Result<uint64_t> element_count(std::span<const int64_t> shape);
// The common part; nothing in common: a box with a size 0. Equal rank is required (CHECK).
Box intersect(const Box& a, const Box& b);
std::string to_string(const Box& box);  // "[0:4, 128:256]"

// Rows of elements that lie one after the other in both arrays.
struct Run {
  uint64_t from = 0;   // element in the source, which holds the box `held` row-major
  uint64_t to = 0;     // element in the destination, which holds `wanted` row-major
  uint64_t count = 0;  // elements
};
// How `part`, which lies in both, is copied. As few runs as possible: dimensions that are whole in
// both are merged. Ascending in `from`.
std::vector<Run> runs_of(const Box& part, const Box& held, const Box& wanted);

// The boxes lie in `shape`, do not overlap, and cover it. kDataLoss names what is wrong: the box,
// the two that overlap, or how many elements are missing. O(n log n) where boxes are slices along
// one dimension. Empty boxes are legal anywhere in the shape.
base::Status check_tiling(const Shape& shape, std::span<const Box> boxes);

}  // namespace perdure::checkpoint
