#include "recovery/restore_choice.h"

#include <algorithm>
#include <tuple>

namespace perdure::recovery {
namespace {

constexpr size_t kStepsDescribed = 3;

// Who can bring a tensor, and from how far.
struct Source {
  std::optional<StateTier> tier;  // none: live
  base::WorkerId worker;
};

struct KnownTensor {
  uint64_t digest = 0;  // of the nearest source; others with another one are not used
  std::vector<Source> sources;
};

// What all together have of one state.
struct Candidate {
  CommittedState committed;
  std::vector<KnownTensor> tensors;  // by id
};

class Candidates {
 public:
  Candidates(const parallel::ModelSpec& model, const std::vector<ToldState>& told)
      : tensor_count_(model.tensors.size()) {
    for (const ToldState& t : told) {
      if (t.state.has_state != 0) add(t.state.committed, t.state.tensors, {{}, t.worker});
    }
    for (const StateTier tier :
         {StateTier::kMemory, StateTier::kPeer, StateTier::kDisk, StateTier::kDurable}) {
      for (const ToldState& t : told) {
        for (const StateOffer& offer : t.state.offers) {
          if (offer.tier == tier) add(offer.committed, offer.tensors, {tier, t.worker});
        }
      }
    }
    // Newest first; of one step with different scalars, in the order in which they were told.
    std::stable_sort(list_.begin(), list_.end(), [](const Candidate& a, const Candidate& b) {
      return a.committed.step > b.committed.step;
    });
  }
  const std::vector<Candidate>& newest_first() const { return list_; }

 private:
  void add(const CommittedState& committed, const std::vector<TensorDigest>& tensors,
           const Source& source) {
    auto found = std::find_if(list_.begin(), list_.end(), [&committed](const Candidate& c) {
      return c.committed == committed;
    });
    if (found == list_.end()) {
      list_.push_back({committed, std::vector<KnownTensor>(tensor_count_)});
      found = std::prev(list_.end());
    }
    for (const TensorDigest& d : tensors) {
      if (d.tensor.value() >= tensor_count_) continue;
      KnownTensor& known = found->tensors[d.tensor.value()];
      if (known.sources.empty()) known.digest = d.digest;
      if (known.digest == d.digest) known.sources.push_back(source);
    }
  }

  const size_t tensor_count_;
  std::vector<Candidate> list_;
};

bool is_whole(const Candidate& candidate) {
  return std::none_of(candidate.tensors.begin(), candidate.tensors.end(),
                      [](const KnownTensor& t) { return t.sources.empty(); });
}

RestoreChoice assign(const parallel::ModelSpec& model, const Candidate& candidate) {
  RestoreChoice choice{.target = candidate.committed, .loads = {}, .live = 0};
  std::map<base::WorkerId, int64_t> elements;
  for (uint32_t t = 0; t < candidate.tensors.size(); ++t) {
    const KnownTensor& tensor = candidate.tensors[t];
    if (!tensor.sources.front().tier.has_value()) {
      ++choice.live;
      continue;
    }
    const auto best = std::min_element(tensor.sources.begin(), tensor.sources.end(),
                                       [&elements](const Source& a, const Source& b) {
                                         return std::tuple(a.tier, elements[a.worker], a.worker) <
                                                std::tuple(b.tier, elements[b.worker], b.worker);
                                       });
    elements[best->worker] += model.tensors[t].elements();
    choice.loads[best->worker].push_back({base::TensorId(t), tensor.digest});
  }
  return choice;
}

}  // namespace

std::optional<RestoreChoice> choose_restore(const parallel::ModelSpec& model,
                                            const std::vector<ToldState>& told,
                                            std::optional<base::Step> only) {
  const Candidates candidates(model, told);
  for (const Candidate& candidate : candidates.newest_first()) {
    if (only.has_value() && candidate.committed.step != *only) continue;
    if (is_whole(candidate)) return assign(model, candidate);
  }
  return std::nullopt;
}

std::string describe_offers(const parallel::ModelSpec& model, const std::vector<ToldState>& told) {
  const Candidates candidates(model, told);
  std::string text;
  size_t described = 0;
  for (const Candidate& candidate : candidates.newest_first()) {
    if (described++ == kStepsDescribed) break;
    size_t missing = 0;
    std::string first;
    for (uint32_t t = 0; t < candidate.tensors.size(); ++t) {
      if (!candidate.tensors[t].sources.empty()) continue;
      if (missing++ == 0) first = model.tensors[t].name;
    }
    text += (text.empty() ? "step " : "; step ") + std::to_string(candidate.committed.step.value());
    text += missing == 0 ? " is whole"
                         : ": " + std::to_string(missing) + " of " +
                               std::to_string(candidate.tensors.size()) +
                               " tensors are missing, the first is " + first;
  }
  return text.empty() ? "no worker offers any older state" : text;
}

}  // namespace perdure::recovery
