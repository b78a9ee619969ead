#pragma once
// ByteQueue: bytes in at the back, out at the front, always contiguous. It reuses its memory.

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/units.h"

namespace perdure::chaos {

class ByteQueue {
 public:
  size_t size() const { return bytes_.size() - head_; }
  base::ByteSpan view() const { return base::ByteSpan(bytes_).subspan(head_); }

  void push(base::ByteSpan bytes) {
    if (head_ == bytes_.size()) {
      bytes_.clear();
      head_ = 0;
    } else if (head_ > bytes_.size() / 2) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(head_));
      head_ = 0;
    }
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }

  void pop(base::MutableByteSpan out) {
    CHECK_LE(out.size(), size());
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(head_), out.size(), out.begin());
    head_ += out.size();
  }

 private:
  std::vector<std::byte> bytes_;
  size_t head_ = 0;
};

}  // namespace perdure::chaos
