#include "chaos/cluster/node_memory.h"

#include <algorithm>

namespace perdure::chaos::cluster {

void NodeMemory::begin_save(base::WorkerId worker, base::Step step) {
  Slots& slots = kept_[worker];
  size_t slot = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].has_value()) slot = i;
  }
  if (slots[0].has_value() && slots[1].has_value())
    slot = slots[0]->committed.step < slots[1]->committed.step ? 0 : 1;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].has_value() && slots[i]->committed.step == step) slot = i;
  }
  slots[slot].reset();
  saving_[worker] = slot;
}

void NodeMemory::end_save(base::WorkerId worker, recovery::StateOffer snapshot) {
  kept_[worker][saving_.at(worker)] = std::move(snapshot);
}

std::vector<recovery::StateOffer> NodeMemory::offers() const {
  std::vector<recovery::StateOffer> result;
  for (const auto& [worker, slots] : kept_) {
    for (const auto& slot : slots) {
      if (slot.has_value() && !slot->tensors.empty()) result.push_back(*slot);
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const auto& a, const auto& b) {
    return a.committed.step > b.committed.step;
  });
  return result;
}

void NodeMemory::drop(base::Step step, base::TensorId tensor) {
  for (auto& [worker, slots] : kept_) {
    for (auto& slot : slots) {
      if (!slot.has_value() || slot->committed.step != step) continue;
      std::erase_if(slot->tensors, [tensor](const auto& t) { return t.tensor == tensor; });
    }
  }
}

bool NodeMemory::is_spoiled(base::Step step) const {
  return std::find(spoiled_.begin(), spoiled_.end(), step) != spoiled_.end();
}

}  // namespace perdure::chaos::cluster
