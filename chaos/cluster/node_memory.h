#pragma once
// NodeMemory: the snapshots that a simulated node keeps of its workers' states. It lives as long as
// the node's agent does; a worker that is killed while it takes one loses that one only.

#include <array>
#include <map>
#include <optional>
#include <vector>

#include "recovery/epoch_types.h"
#include "runtime/protocol/report_messages.h"

namespace perdure::chaos::cluster {

class NodeMemory {
 public:
  // The one that is overwritten is gone from here on: of this step, else the older one.
  void begin_save(base::WorkerId worker, base::Step step);
  void end_save(base::WorkerId worker, recovery::StateOffer snapshot);
  // Of all workers of the node, newest first.
  std::vector<recovery::StateOffer> offers() const;
  void drop(base::Step step, base::TensorId tensor);  // found bad
  // What a worker has reported outlives its process, too.
  std::vector<runtime::protocol::StepReport>& reports(base::WorkerId worker) {
    return reports_[worker];
  }
  void clear() {
    kept_.clear();
    for (auto& [worker, reports] : reports_) reports.clear();  // engines refer to them
  }
  // A bit flips in every copy of this step; found when it is read.
  void spoil(base::Step step) { spoiled_.push_back(step); }
  bool is_spoiled(base::Step step) const;

 private:
  using Slots = std::array<std::optional<recovery::StateOffer>, 2>;
  std::map<base::WorkerId, Slots> kept_;
  std::map<base::WorkerId, size_t> saving_;
  std::vector<base::Step> spoiled_;
  std::map<base::WorkerId, std::vector<runtime::protocol::StepReport>> reports_;
};

}  // namespace perdure::chaos::cluster
