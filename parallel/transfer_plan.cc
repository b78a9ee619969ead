#include "parallel/transfer_plan.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>

namespace perdure::parallel {
namespace {

using base::Rank;
using base::TensorId;

// What rank `to` lacks.
struct Want {
  TensorId tensor;
  Rank to;
};

std::vector<Want> find_wants(const ModelSpec& model, const Layout& layout,
                             std::span<const std::span<const TensorId>> held) {
  std::map<std::pair<uint32_t, uint32_t>, std::vector<TensorId>> needs;  // by layer range
  std::vector<Want> wants;
  std::vector<TensorId> missing;
  for (const PipelinePlace& pipeline : layout.pipelines) {
    for (const StagePlace& stage : pipeline.stages) {
      auto [found, is_new] = needs.try_emplace({stage.layer_begin, stage.layer_end});
      if (is_new) found->second = tensors_of_layers(model, stage.layer_begin, stage.layer_end);
      const std::vector<TensorId>& need = found->second;
      const std::span<const TensorId> has = held[stage.rank.value()];
      if (std::equal(need.begin(), need.end(), has.begin(), has.end())) continue;
      missing.clear();
      std::set_difference(need.begin(), need.end(), has.begin(), has.end(),
                          std::back_inserter(missing));
      for (const TensorId tensor : missing) wants.push_back({tensor, stage.rank});
    }
  }
  return wants;
}

// Holders of the tensors that somebody wants, ascending; nothing of the others.
std::vector<std::vector<Rank>> find_holders(const ModelSpec& model, const std::vector<Want>& wants,
                                            std::span<const std::span<const TensorId>> held) {
  std::vector<bool> is_wanted(model.tensors.size());
  for (const Want& want : wants) is_wanted[want.tensor.value()] = true;
  std::vector<std::vector<Rank>> holders(model.tensors.size());
  for (size_t r = 0; r < held.size(); ++r) {
    for (const TensorId tensor : held[r]) {
      if (is_wanted[tensor.value()]) {
        holders[tensor.value()].push_back(Rank(static_cast<uint32_t>(r)));
      }
    }
  }
  return holders;
}

// Gives tensors to those who want them, each from the holder that has sent least.
class Sources {
 public:
  explicit Sources(size_t ranks) : sent_(ranks), received_(ranks) {}

  void serve(TensorId tensor, int64_t bytes, std::span<const Want> wants,
             const std::vector<Rank>& holders, TransferPlan& plan) {
    heap_.clear();
    for (const Rank rank : holders) heap_.emplace_back(sent_[rank.value()], rank);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    for (const Want& want : wants) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Rank from = heap_.back().second;
      CHECK_NE(from.value(), want.to.value());
      sent_[from.value()] += bytes;
      received_[want.to.value()] += bytes;
      plan.bytes += bytes;
      plan.moves.push_back({.tensor = tensor, .from = from, .to = want.to});
      heap_.back().first = sent_[from.value()];
      std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
  }

  int64_t busiest() const {
    int64_t most = 0;
    for (size_t r = 0; r < sent_.size(); ++r) most = std::max(most, sent_[r] + received_[r]);
    return most;
  }

 private:
  std::vector<int64_t> sent_;
  std::vector<int64_t> received_;
  std::vector<std::pair<int64_t, Rank>> heap_;
};

}  // namespace

int64_t tensor_state_bytes(const ModelSpec& model, TensorId tensor) {
  constexpr int64_t kArrays = 3;  // parameter, first and second moment
  constexpr int64_t kElementBytes = 4;
  return model.tensor(tensor).elements() * kArrays * kElementBytes;
}

std::vector<TensorId> tensors_of_layers(const ModelSpec& model, uint32_t begin, uint32_t end) {
  CHECK_LE(end, model.layers.size());
  std::vector<TensorId> list;
  for (uint32_t l = begin; l < end; ++l) {
    for (const TensorUseInLayer& use : model.layers[l].tensors) list.push_back(use.tensor);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

base::Status state_is_gone(const ModelSpec& model, const std::vector<bool>& is_gone) {
  std::string names;
  for (const LayerSpec& layer : model.layers) {
    const bool is_hit =
        std::any_of(layer.tensors.begin(), layer.tensors.end(),
                    [&is_gone](const TensorUseInLayer& u) { return is_gone[u.tensor.value()]; });
    if (is_hit) names += (names.empty() ? "" : ", ") + layer.name;
  }
  if (names.empty()) return base::Status::ok();
  return base::data_loss("no worker that is left holds the state of " + names);
}

base::Result<TransferPlan> make_transfer_plan(const ModelSpec& model, const Layout& layout,
                                              std::span<const std::span<const TensorId>> held) {
  CHECK_EQ(held.size(), static_cast<size_t>(layout.ranks()));
  std::vector<Want> wants = find_wants(model, layout, held);
  if (wants.empty()) return TransferPlan{};
  const std::vector<std::vector<Rank>> holders = find_holders(model, wants, held);
  std::vector<bool> is_gone(model.tensors.size());
  for (const Want& want : wants) {
    if (holders[want.tensor.value()].empty()) is_gone[want.tensor.value()] = true;
  }
  RETURN_IF_ERROR(state_is_gone(model, is_gone));

  std::vector<int64_t> bytes(model.tensors.size());
  for (uint32_t t = 0; t < bytes.size(); ++t) bytes[t] = tensor_state_bytes(model, TensorId(t));
  std::sort(wants.begin(), wants.end(), [&bytes](const Want& a, const Want& b) {
    const int64_t bytes_a = bytes[a.tensor.value()];
    const int64_t bytes_b = bytes[b.tensor.value()];
    return std::tie(bytes_b, a.tensor, a.to) < std::tie(bytes_a, b.tensor, b.to);
  });
  TransferPlan plan;
  Sources sources(held.size());
  for (size_t begin = 0, end = 0; begin < wants.size(); begin = end) {
    const TensorId tensor = wants[begin].tensor;
    while (end < wants.size() && wants[end].tensor == tensor) ++end;
    sources.serve(tensor, bytes[tensor.value()], std::span(wants).subspan(begin, end - begin),
                  holders[tensor.value()], plan);
  }
  plan.busiest_rank_bytes = sources.busiest();
  std::sort(plan.moves.begin(), plan.moves.end(), [](const TensorMove& a, const TensorMove& b) {
    return std::tie(a.tensor, a.to) < std::tie(b.tensor, b.to);
  });
  return plan;
}

base::Result<TransferPlan> make_transfer_plan(const ModelSpec& model, const Layout& layout,
                                              const std::vector<std::vector<TensorId>>& held) {
  const std::vector<std::span<const TensorId>> views(held.begin(), held.end());
  return make_transfer_plan(model, layout, std::span(views));
}

}  // namespace perdure::parallel
