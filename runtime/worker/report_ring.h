#pragma once
// ReportRing: the newest steps' reports, so that a coordinator that was away can ask for them. Its
// memory is resident from the start: a step must not fault pages. It may be memory that outlives
// the process; a new process of the same worker then finds the reports of the one before.

#include <atomic>
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
    ASSIGN_OR_RETURN(kernels::HostRegion memory, kernels::HostRegion::make(bytes_for(capacity)));
    const base::MutableByteSpan bytes(memory.data(), memory.size_bytes());
    return ReportRing(std::move(memory), bytes, capacity);
  }
  // In memory of this size or more, which outlives the ring: zeros, or what a ring has left there.
  static ReportRing attach(base::MutableByteSpan memory, size_t capacity = kReportsMax) {
    CHECK_GE(memory.size(), bytes_for(capacity));
    return ReportRing({}, memory, capacity);
  }
  static size_t bytes_for(size_t capacity) {
    return sizeof(Header) + capacity * sizeof(protocol::StepReport);
  }

  void add(const protocol::StepReport& report) {
    Header& h = header();
    if (h.count > h.first && report.step <= at(h.count - 1).step) return;
    if (h.count - h.first == capacity_) ++h.first;  // before it is overwritten
    at(h.count) = report;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // a process may end between any two lines
    ++h.count;
  }

  // An epoch resumes at `step`: what was known of later ones did not happen.
  void truncate(base::Step step) {
    Header& h = header();
    while (h.count > h.first && at(h.count - 1).step > step) --h.count;
  }

  // Those after `after`, oldest first.
  std::vector<protocol::StepReport> after(base::Step step) const {
    std::vector<protocol::StepReport> result;
    for (uint64_t i = header().first; i < header().count; ++i) {
      if (at(i).step > step) result.push_back(at(i));
    }
    return result;
  }

  size_t size_bytes() const { return memory_.size(); }

 private:
  struct Header {
    uint64_t capacity;  // 0: new
    uint64_t first;     // reports [first, count) are there
    uint64_t count;
  };
  static_assert(std::is_trivially_copyable_v<protocol::StepReport>);
  ReportRing(kernels::HostRegion own, base::MutableByteSpan memory, size_t capacity)
      : own_(std::move(own)), memory_(memory), capacity_(capacity) {
    const Header& h = header();
    const bool is_sound =
        h.capacity == capacity && h.first <= h.count && h.count - h.first <= capacity;
    if (!is_sound) header() = {.capacity = capacity, .first = 0, .count = 0};
  }
  Header& header() const { return *reinterpret_cast<Header*>(memory_.data()); }
  protocol::StepReport& at(uint64_t index) const {
    std::byte* const reports = memory_.data() + sizeof(Header);
    return reinterpret_cast<protocol::StepReport*>(reports)[index % capacity_];
  }

  kernels::HostRegion own_;
  base::MutableByteSpan memory_;
  size_t capacity_;
};

}  // namespace perdure::runtime::worker
