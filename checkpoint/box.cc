#include "checkpoint/box.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace perdure::checkpoint {
namespace {

using base::Status;

constexpr uint64_t kCountMax = std::numeric_limits<int64_t>::max();

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  }
  return text + "]";
}

// Decimal digits of a number that 64 bits do not hold.
std::string to_text(unsigned __int128 value) {
  std::string text;
  do {
    text.insert(text.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value != 0);
  return text;
}

// Elements from one index of a dimension to the next, row-major.
std::vector<uint64_t> strides_of(const Box& box) {
  std::vector<uint64_t> strides(box.size.size());
  uint64_t stride = 1;
  for (size_t d = strides.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= static_cast<uint64_t>(box.size[d]);
  }
  return strides;
}

// The element of `box` at the first corner of `part`.
uint64_t first_element(const Box& part, const Box& box, const std::vector<uint64_t>& strides) {
  uint64_t element = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    CHECK_GE(part.offset[d], box.offset[d]);
    CHECK_LE(part.offset[d] + part.size[d], box.offset[d] + box.size[d]);
    element += static_cast<uint64_t>(part.offset[d] - box.offset[d]) * strides[d];
  }
  return element;
}

// Looks for two boxes that overlap. A group of boxes is cut wherever a plane across one dimension
// cuts none of them; only what no plane can cut is compared pair by pair. Slices and grids fall
// apart into single boxes at once.
class OverlapSearch {
 public:
  explicit OverlapSearch(std::vector<const Box*> boxes) : boxes_(std::move(boxes)) {
    todo_.push_back({0, boxes_.size()});
  }

  Status run() {
    while (!todo_.empty()) {
      const Group group = todo_.back();
      todo_.pop_back();
      if (group.end - group.begin < 2) continue;
      const size_t rank = boxes_[group.begin]->size.size();
      bool is_cut = false;
      for (size_t d = 0; d < rank && !is_cut; ++d) is_cut = cut(group, d);
      if (!is_cut) RETURN_IF_ERROR(compare(group));
    }
    return Status::ok();
  }

 private:
  struct Group {
    size_t begin = 0;
    size_t end = 0;
  };

  void sort(Group group, size_t d) {
    std::sort(boxes_.begin() + static_cast<ptrdiff_t>(group.begin),
              boxes_.begin() + static_cast<ptrdiff_t>(group.end), [d](const Box* a, const Box* b) {
                if (a->offset[d] != b->offset[d]) return a->offset[d] < b->offset[d];
                return a < b;
              });
  }

  bool cut(Group group, size_t d) {
    sort(group, d);
    size_t begin = group.begin;
    int64_t end_max = boxes_[begin]->offset[d] + boxes_[begin]->size[d];
    for (size_t i = begin + 1; i < group.end; ++i) {
      const Box& box = *boxes_[i];
      if (box.offset[d] >= end_max) {
        todo_.push_back({begin, i});
        begin = i;
      }
      end_max = std::max(end_max, box.offset[d] + box.size[d]);
    }
    if (begin == group.begin) return false;
    todo_.push_back({begin, group.end});
    return true;
  }

  Status compare(Group group) {
    const bool has_dimensions = !boxes_[group.begin]->size.empty();
    if (has_dimensions) sort(group, 0);
    for (size_t i = group.begin; i < group.end; ++i) {
      const Box& a = *boxes_[i];
      for (size_t j = i + 1; j < group.end; ++j) {
        const Box& b = *boxes_[j];
        if (has_dimensions && b.offset[0] >= a.offset[0] + a.size[0]) break;
        if (!is_empty(intersect(a, b))) {
          return base::data_loss("the boxes " + to_string(a) + " and " + to_string(b) + " overlap");
        }
      }
    }
    return Status::ok();
  }

  std::vector<const Box*> boxes_;
  std::vector<Group> todo_;
};

}  // namespace

bool lies_in(const Box& box, const Shape& shape) {
  if (box.offset.size() != shape.size() || box.size.size() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] < 0 || box.size[d] < 0 || box.offset[d] > shape[d]) return false;
    if (box.size[d] > shape[d] - box.offset[d]) return false;
  }
  return true;
}

Box whole(const Shape& shape) { return {.offset = Shape(shape.size(), 0), .size = shape}; }

bool is_empty(const Box& box) {
  return std::any_of(box.size.begin(), box.size.end(), [](int64_t size) { return size == 0; });
}

base::Result<uint64_t> element_count(std::span<const int64_t> shape) {
  // Zeros come last: what overflows without them is no shape that anybody has made.
  uint64_t count = 1;
  bool has_zero = false;
  for (const int64_t size : shape) {
    if (size < 0) {
      return base::invalid_argument("the shape " + shape_text(shape) + " has a negative size");
    }
    if (size == 0) {
      has_zero = true;
      continue;
    }
    if (count > kCountMax / static_cast<uint64_t>(size)) {
      return base::invalid_argument("the shape " + shape_text(shape) +
                                    " has more than 2^63 - 1 elements");
    }
    count *= static_cast<uint64_t>(size);
  }
  return has_zero ? 0 : count;
}

Box intersect(const Box& a, const Box& b) {
  const size_t rank = a.size.size();
  CHECK_EQ(a.offset.size(), rank);
  CHECK_EQ(b.offset.size(), rank);
  CHECK_EQ(b.size.size(), rank);
  Box common = {.offset = Shape(rank), .size = Shape(rank)};
  for (size_t d = 0; d < rank; ++d) {
    common.offset[d] = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    common.size[d] = std::max<int64_t>(0, end - common.offset[d]);
  }
  return common;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (size_t d = 0; d < box.size.size(); ++d) {
    const int64_t offset = d < box.offset.size() ? box.offset[d] : 0;
    text += d == 0 ? "" : ", ";
    text += std::to_string(offset) + ":" +
            to_text(static_cast<unsigned __int128>(std::max<int64_t>(offset, 0)) +
                    static_cast<unsigned __int128>(std::max<int64_t>(box.size[d], 0)));
  }
  return text + "]";
}

std::vector<Run> runs_of(const Box& part, const Box& held, const Box& wanted) {
  const size_t rank = part.size.size();
  CHECK_EQ(held.size.size(), rank);
  CHECK_EQ(wanted.size.size(), rank);
  if (is_empty(part)) return {};
  const std::vector<uint64_t> from_strides = strides_of(held);
  const std::vector<uint64_t> to_strides = strides_of(wanted);

  // Dimensions from `outer` on lie in one run.
  size_t outer = rank;
  uint64_t count = 1;
  while (outer > 0) {
    --outer;
    count *= static_cast<uint64_t>(part.size[outer]);
    const bool is_whole =
        part.size[outer] == held.size[outer] && part.size[outer] == wanted.size[outer];
    if (!is_whole) break;
  }

  Run run = {.from = first_element(part, held, from_strides),
             .to = first_element(part, wanted, to_strides),
             .count = count};
  std::vector<Run> runs;
  std::vector<int64_t> index(outer, 0);
  while (true) {
    runs.push_back(run);
    size_t d = outer;
    while (d > 0 && index[d - 1] + 1 == part.size[d - 1]) {
      --d;
      run.from -= static_cast<uint64_t>(index[d]) * from_strides[d];
      run.to -= static_cast<uint64_t>(index[d]) * to_strides[d];
      index[d] = 0;
    }
    if (d == 0) return runs;
    ++index[d - 1];
    run.from += from_strides[d - 1];
    run.to += to_strides[d - 1];
  }
}

base::Status check_tiling(const Shape& shape, std::span<const Box> boxes) {
  const base::Result<uint64_t> total = element_count(shape);
  if (!total.is_ok()) return base::data_loss(total.status().message());
  unsigned __int128 covered = 0;
  std::vector<const Box*> full;
  for (const Box& box : boxes) {
    if (!lies_in(box, shape)) {
      return base::data_loss("the box at " + shape_text(box.offset) + " of size " +
                             shape_text(box.size) + " does not lie in the shape " +
                             shape_text(shape));
    }
    if (is_empty(box)) continue;
    full.push_back(&box);
    covered += *element_count(box.size);
  }
  RETURN_IF_ERROR(OverlapSearch(std::move(full)).run());
  if (covered != *total) {
    return base::data_loss("the boxes cover " + to_text(covered) + " of the " +
                           std::to_string(*total) + " elements of the shape " + shape_text(shape) +
                           ": " + std::to_string(*total - static_cast<uint64_t>(covered)) +
                           " are missing");
  }
  return Status::ok();
}

}  // namespace perdure::checkpoint
