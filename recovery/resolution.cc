#include "recovery/resolution.h"

#include <algorithm>
#include <map>

namespace perdure::recovery {

Resolution resolve(const std::vector<ToldState>& told) {
  Resolution result;
  for (const ToldState& t : told) {
    if (t.state.has_state == 0) continue;
    if (!result.any_state || t.state.committed.step > result.committed.step) {
      result.committed = t.state.committed;
    }
    result.any_state = true;
  }
  std::vector<const ToldState*> one_behind;
  for (const ToldState& t : told) {
    if (t.state.has_state == 0) continue;
    if (t.state.committed.step == result.committed.step) {
      result.holders.push_back(t.worker);
    } else if (t.state.committed.step.next() == result.committed.step &&
               t.state.pending.epoch.value() != 0) {
      one_behind.push_back(&t);
    } else {
      result.stale.push_back(t.worker);
    }
  }
  if (one_behind.empty()) return result;
  // By vote, the first who can give it.
  std::map<std::pair<base::Epoch, uint32_t>, base::WorkerId> givers;
  for (const ToldState& t : told) {
    if (t.state.has_state != 0 && t.state.committed.step == result.committed.step)
      givers.emplace(std::pair(t.state.vote.epoch, t.state.vote.attempt), t.worker);
  }
  for (const ToldState* t : one_behind) {
    const auto giver = givers.find({t->state.pending.epoch, t->state.pending.attempt});
    if (giver == givers.end()) {
      result.stale.push_back(t->worker);
      continue;
    }
    result.behind.push_back(t->worker);
    if (!result.asked.has_value()) result.asked = giver->second;
  }
  return result;
}

base::Result<HeldDigests> agree_on_digests(const parallel::ModelSpec& model,
                                           const std::vector<ToldState>& told,
                                           const CommittedState& committed) {
  HeldDigests result;
  result.by_tensor.resize(model.tensors.size());
  std::vector<base::WorkerId> first(model.tensors.size());
  for (const ToldState& t : told) {
    if (t.state.has_state == 0 || t.state.committed.step != committed.step) continue;
    const auto name = [](base::WorkerId worker) {
      return "worker " + std::to_string(worker.value());
    };
    if (!(t.state.committed == committed)) {
      return base::data_loss(name(t.worker) + " is at step " +
                             std::to_string(committed.step.value()) +
                             " with another data cursor or optimizer count than its peers");
    }
    for (const TensorDigest& d : t.state.tensors) {
      if (d.tensor.value() >= model.tensors.size())
        return base::data_loss(name(t.worker) + " holds a tensor that the model has not");
      std::optional<uint64_t>& known = result.by_tensor[d.tensor.value()];
      if (!known.has_value()) {
        known = d.digest;
        first[d.tensor.value()] = t.worker;
      } else if (*known != d.digest) {
        return base::data_loss("replicas of " + model.tensor(d.tensor).name + " differ at step " +
                               std::to_string(committed.step.value()) + ": worker " +
                               std::to_string(first[d.tensor.value()].value()) + " and " +
                               name(t.worker));
      }
    }
  }
  return result;
}

}  // namespace perdure::recovery
