#pragma once
// Boxes by counting their elements one by one: what the fast ways are compared with.

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "checkpoint/box.h"

namespace perdure::checkpoint::testing {

// All elements of a box, row-major, each as its place in an array of the whole shape.
inline std::vector<int64_t> places(const Box& box, const Shape& shape) {
  std::vector<int64_t> all;
  if (is_empty(box)) return all;
  std::vector<int64_t> index(shape.size(), 0);
  while (true) {
    int64_t place = 0;
    for (size_t d = 0; d < shape.size(); ++d) place = place * shape[d] + box.offset[d] + index[d];
    all.push_back(place);
    size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == box.size[d - 1]) index[--d] = 0;
    if (d == 0) return all;
  }
}

// One in three dimensions is whole, one in twenty empty.
inline Box random_box(base::SeededRandom& random, const Shape& shape) {
  Box box;
  for (const int64_t size : shape) {
    if (random.uniform_int(3) == 0) {
      box.offset.push_back(0);
      box.size.push_back(size);
      continue;
    }
    const auto begin = static_cast<int64_t>(random.uniform_int(static_cast<uint64_t>(size)));
    const auto left = static_cast<uint64_t>(size - begin);
    const bool empty = random.uniform_int(20) == 0;
    box.offset.push_back(begin);
    box.size.push_back(empty ? 0 : static_cast<int64_t>(1 + random.uniform_int(left)));
  }
  return box;
}

// Cuts boxes in two, up to `cuts_max - 1` times, anywhere: empty ones come out as well.
inline std::vector<Box> random_tiling(base::SeededRandom& random, const Shape& shape,
                                      size_t cuts_max) {
  std::vector<Box> boxes = {whole(shape)};
  for (size_t cuts = random.uniform_int(cuts_max); cuts > 0 && !shape.empty(); --cuts) {
    Box& box = boxes[random.uniform_int(boxes.size())];
    const size_t d = random.uniform_int(shape.size());
    Box rest = box;
    box.size[d] = static_cast<int64_t>(random.uniform_int(static_cast<uint64_t>(box.size[d]) + 1));
    rest.offset[d] += box.size[d];
    rest.size[d] -= box.size[d];
    boxes.push_back(rest);
  }
  return boxes;
}

}  // namespace perdure::checkpoint::testing
