#pragma once
// Workspace: scratch of the ops, taken and given back like a stack within one op. Sized once.

#include <cstddef>

#include "base/check.h"
#include "kernels/host_memory.h"

namespace perdure::kernels::cpu {

class Workspace {
 public:
  explicit Workspace(HostRegion region) : region_(std::move(region)) {}

  size_t size_bytes() const { return region_.size_bytes(); }

  // Room for `count` elements, 64-byte aligned, until the enclosing Scope ends.
  template <typename T>
  T* take(int64_t count) {
    CHECK_GE(count, 0);
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 63) / 64 * 64;
    CHECK(bytes <= region_.size_bytes() - used_)
        << "workspace of " << region_.size_bytes() << " bytes is too small: " << used_ << " used, "
        << bytes << " wanted. Raise DeviceOptions::workspace_bytes";
    auto* at = reinterpret_cast<T*>(region_.data() + used_);
    used_ += bytes;
    return at;
  }

  class Scope {
   public:
    explicit Scope(Workspace& workspace) : workspace_(workspace), mark_(workspace.used_) {}
    ~Scope() { workspace_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Workspace& workspace_;
    size_t mark_;
  };

 private:
  HostRegion region_;
  size_t used_ = 0;
};

}  // namespace perdure::kernels::cpu
