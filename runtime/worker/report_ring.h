#pragma once
// ReportRing: the newest steps' reports, so that a coordinator that was away can ask for them. Its
// memory is resident from the start: a step must not fault pages.

#include <algorithm>
#include <span>
#include <vector>

#include "kernels/host_memory.h"
#include "runtime/protocol/report_messages.h"

namespace perdure::runtime::worker {

inline constexpr size_t kReportsMax = 65536;

// Steps come in ascending order; one that is known already is not added again.
class ReportRing {
 public:
  static base::Result<ReportRing> make(size_t capacity = kReportsMax) {
    ASSIGN_OR_RETURN(kernels::HostRegion memory,
                     kernels::HostRegion::make(capacity * sizeof(protocol::StepReport)));
    return ReportRing(std::move(memory), capacity);
  }

  void add(const protocol::StepReport& report) {
    if (count_ > first_ && report.step <= at(count_ - 1).step) return;
    at(count_) = report;
    ++count_;
    first_ = std::max(first_, count_ - std::min<uint64_t>(count_, capacity_));
  }

  // An epoch resumes at `step`: what was known of later ones did not happen.
  void truncate(base::Step step) {
    while (count_ > first_ && at(count_ - 1).step > step) --count_;
  }

  // Those after `after`, oldest first.
  std::vector<protocol::StepReport> after(base::Step step) const {
    std::vector<protocol::StepReport> result;
    for (uint64_t i = first_; i < count_; ++i) {
      if (at(i).step > step) result.push_back(at(i));
    }
    return result;
  }

  size_t size_bytes() const { return memory_.size_bytes(); }

 private:
  static_assert(std::is_trivially_copyable_v<protocol::StepReport>);
  ReportRing(kernels::HostRegion memory, size_t capacity)
      : memory_(std::move(memory)), capacity_(capacity) {}
  protocol::StepReport& at(uint64_t index) const {
    return reinterpret_cast<protocol::StepReport*>(memory_.data())[index % capacity_];
  }

  kernels::HostRegion memory_;
  size_t capacity_;
  uint64_t first_ = 0;  // reports [first, count) are there
  uint64_t count_ = 0;
};

}  // namespace perdure::runtime::worker
