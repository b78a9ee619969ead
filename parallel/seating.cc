#include "parallel/seating.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/random.h"
#include "parallel/replanner.h"
#include "parallel/transfer_plan.h"

namespace perdure::parallel {
namespace {

using base::TensorId;

struct Range {
  std::vector<TensorId> needed;
  std::vector<uint32_t> open;        // ranks without a worker, ascending
  std::vector<uint32_t> node_count;  // replicas of this range by node
};

// Workers that are free, by node, lowest number first.
class Pool {
 public:
  explicit Pool(size_t nodes) : queues_(nodes) {}

  void add(uint32_t node, uint32_t worker) {  // ascending by worker
    if (queues_[node].workers.empty()) used_nodes_.push_back(node);
    queues_[node].workers.push_back(worker);
  }
  bool has(uint32_t node) const { return queues_[node].next < queues_[node].workers.size(); }
  uint32_t first(uint32_t node) const { return queues_[node].workers[queues_[node].next]; }
  void pop(uint32_t node) { ++queues_[node].next; }
  const std::vector<uint32_t>& nodes() const { return used_nodes_; }

 private:
  struct Queue {
    std::vector<uint32_t> workers;
    size_t next = 0;
  };
  std::vector<Queue> queues_;
  std::vector<uint32_t> used_nodes_;
};

// Takes workers of a pool for one range: from the node with the fewest replicas of it, ties to the
// lowest worker. Other pickers may take from the same pool: entries are put right when they come up
// (their keys only grow).
class Picker {
 public:
  Picker(Pool& pool, Range& range) : pool_(pool), range_(range) {
    for (const uint32_t node : pool.nodes()) {
      if (pool.has(node)) heap_.push_back(entry(node));
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  uint32_t pick() {
    while (true) {
      CHECK(!heap_.empty()) << "more seats than workers";
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Entry top = heap_.back();
      const uint32_t node = std::get<2>(top);
      heap_.pop_back();
      if (!pool_.has(node)) continue;
      if (top == entry(node)) {
        const uint32_t worker = pool_.first(node);
        pool_.pop(node);
        ++range_.node_count[node];
        if (pool_.has(node)) push(node);
        return worker;
      }
      push(node);
    }
  }

 private:
  using Entry = std::tuple<uint32_t, uint32_t, uint32_t>;  // replicas, lowest worker, node

  Entry entry(uint32_t node) const { return {range_.node_count[node], pool_.first(node), node}; }
  void push(uint32_t node) {
    heap_.push_back(entry(node));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  Pool& pool_;
  Range& range_;
  std::vector<Entry> heap_;
};

class Seating {
 public:
  Seating(const ModelSpec& model, const Layout& layout, const std::vector<ReplanWorker>& workers,
          std::vector<uint32_t>& seats)
      : model_(model), workers_(workers), seats_(seats), is_free_(workers.size(), true) {
    CHECK_EQ(seats.size(), static_cast<size_t>(layout.ranks()));
    number_nodes();
    for (const uint32_t worker : seats) {
      if (worker == kNobody) continue;
      CHECK(is_free_[worker]) << "worker " << workers[worker].worker << " has two seats";
      is_free_[worker] = false;
    }
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> numbers;
    for (const PipelinePlace& pipeline : layout.pipelines) {
      for (const StagePlace& stage : pipeline.stages) add_seat(stage, numbers);
    }
  }

  // Classes of workers that hold the same, the best matches first.
  void seat_holders();
  void seat_others();
  void cover_all();

 private:
  struct Class {
    const std::vector<TensorId>* held;
    std::vector<uint32_t> workers;  // ascending
  };
  struct Match {
    int64_t bytes;
    uint32_t member;  // class
    uint32_t range;
  };

  void number_nodes();
  void add_seat(const StagePlace& stage,
                std::map<std::pair<uint32_t, uint32_t>, uint32_t>& numbers);
  std::vector<Class> classes_of_free() const;
  int64_t common_bytes(const std::vector<TensorId>& held, const Range& range) const;
  void seat(uint32_t rank, uint32_t worker) {
    seats_[rank] = worker;
    is_free_[worker] = false;
  }
  std::vector<uint32_t> count_holders() const;
  bool is_spare(uint32_t worker, const std::vector<uint32_t>& count,
                const std::vector<TensorId>& instead) const;
  bool cover(TensorId tensor, const std::vector<uint32_t>& count);

  const ModelSpec& model_;
  const std::vector<ReplanWorker>& workers_;
  std::vector<uint32_t>& seats_;
  std::vector<bool> is_free_;
  uint32_t nodes_ = 0;
  std::vector<uint32_t> node_;        // by worker
  std::vector<uint32_t> seat_range_;  // by rank
  std::vector<Range> ranges_;
};

void Seating::number_nodes() {
  std::map<base::NodeId, uint32_t> numbers;
  for (const ReplanWorker& worker : workers_) {
    const auto [found, is_new] = numbers.try_emplace(worker.node, nodes_);
    if (is_new) ++nodes_;
    node_.push_back(found->second);
  }
}

void Seating::add_seat(const StagePlace& stage,
                       std::map<std::pair<uint32_t, uint32_t>, uint32_t>& numbers) {
  const auto [found, is_new] = numbers.try_emplace({stage.layer_begin, stage.layer_end},
                                                   static_cast<uint32_t>(ranges_.size()));
  if (is_new) {
    ranges_.push_back({.needed = tensors_of_layers(model_, stage.layer_begin, stage.layer_end),
                       .open = {},
                       .node_count = std::vector<uint32_t>(nodes_)});
  }
  Range& range = ranges_[found->second];
  seat_range_.push_back(found->second);
  const uint32_t worker = seats_[stage.rank.value()];
  if (worker == kNobody) {
    range.open.push_back(stage.rank.value());
  } else {
    ++range.node_count[node_[worker]];
  }
}

std::vector<Seating::Class> Seating::classes_of_free() const {
  std::vector<Class> classes;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_hash;  // looked up only
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    const std::vector<TensorId>& held = workers_[w].held;
    if (!is_free_[w] || held.empty()) continue;
    uint64_t hash = held.size();
    for (const TensorId tensor : held) hash = base::mix64(hash ^ (tensor.value() + 1));
    std::vector<uint32_t>& candidates = by_hash[hash];
    const auto same = std::find_if(candidates.begin(), candidates.end(),
                                   [&](uint32_t c) { return *classes[c].held == held; });
    if (same != candidates.end()) {
      classes[*same].workers.push_back(w);
    } else {
      candidates.push_back(static_cast<uint32_t>(classes.size()));
      classes.push_back({.held = &held, .workers = {w}});
    }
  }
  return classes;
}

int64_t Seating::common_bytes(const std::vector<TensorId>& held, const Range& range) const {
  int64_t bytes = 0;
  auto h = held.begin();
  for (const TensorId tensor : range.needed) {
    while (h != held.end() && *h < tensor) ++h;
    if (h != held.end() && *h == tensor) bytes += tensor_state_bytes(model_, tensor);
  }
  return bytes;
}

void Seating::seat_holders() {
  std::vector<Class> classes = classes_of_free();
  std::vector<Match> matches;
  for (uint32_t c = 0; c < classes.size(); ++c) {
    for (uint32_t r = 0; r < ranges_.size(); ++r) {
      if (ranges_[r].open.empty()) continue;
      const int64_t bytes = common_bytes(*classes[c].held, ranges_[r]);
      if (bytes > 0) matches.push_back({bytes, c, r});
    }
  }
  std::sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) {
    return std::tie(b.bytes, a.member, a.range) < std::tie(a.bytes, b.member, b.range);
  });
  for (const Match& match : matches) {
    Class& from = classes[match.member];
    Range& range = ranges_[match.range];
    const size_t count = std::min(from.workers.size(), range.open.size());
    if (count == 0) continue;
    Pool pool(nodes_);
    for (const uint32_t worker : from.workers) pool.add(node_[worker], worker);
    Picker picker(pool, range);
    for (size_t i = 0; i < count; ++i) seat(range.open[i], picker.pick());
    range.open.erase(range.open.begin(), range.open.begin() + static_cast<ptrdiff_t>(count));
    std::erase_if(from.workers, [this](uint32_t worker) { return !is_free_[worker]; });
  }
}

void Seating::seat_others() {
  if (std::all_of(ranges_.begin(), ranges_.end(), [](const Range& r) { return r.open.empty(); })) {
    return;
  }
  Pool pool(nodes_);
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    if (is_free_[w]) pool.add(node_[w], w);
  }
  std::vector<Picker> pickers;
  pickers.reserve(ranges_.size());
  for (Range& range : ranges_) pickers.emplace_back(pool, range);
  for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
    if (seats_[rank] == kNobody) seat(rank, pickers[seat_range_[rank]].pick());
  }
}

std::vector<uint32_t> Seating::count_holders() const {
  std::vector<uint32_t> count(model_.tensors.size());
  for (const uint32_t worker : seats_) {
    for (const TensorId tensor : workers_[worker].held) ++count[tensor.value()];
  }
  return count;
}

// Could it leave, if somebody with `instead` came for it?
bool Seating::is_spare(uint32_t worker, const std::vector<uint32_t>& count,
                       const std::vector<TensorId>& instead) const {
  const std::vector<TensorId>& held = workers_[worker].held;
  return std::all_of(held.begin(), held.end(), [&](TensorId tensor) {
    return count[tensor.value()] > 1 || std::binary_search(instead.begin(), instead.end(), tensor);
  });
}

bool Seating::cover(TensorId tensor, const std::vector<uint32_t>& count) {
  for (uint32_t w = 0; w < workers_.size(); ++w) {
    const std::vector<TensorId>& held = workers_[w].held;
    if (!is_free_[w] || !std::binary_search(held.begin(), held.end(), tensor)) continue;
    // The seat where least of what the worker holds is fetched again, the last one of these.
    int64_t bytes_best = -1;
    uint32_t rank_best = 0;
    for (uint32_t rank = 0; rank < seats_.size(); ++rank) {
      if (!is_spare(seats_[rank], count, held)) continue;
      const int64_t bytes = common_bytes(held, ranges_[seat_range_[rank]]);
      if (bytes < bytes_best) continue;
      bytes_best = bytes;
      rank_best = rank;
    }
    if (bytes_best < 0) continue;
    is_free_[seats_[rank_best]] = true;
    seat(rank_best, w);
    return true;
  }
  return false;
}

void Seating::cover_all() {
  std::vector<uint32_t> count = count_holders();
  for (uint32_t t = 0; t < count.size(); ++t) {
    if (count[t] == 0 && cover(TensorId(t), count)) count = count_holders();
  }
}

}  // namespace

void fill_seats(const ModelSpec& model, const Layout& layout,
                const std::vector<ReplanWorker>& workers, HeldState held,
                std::vector<uint32_t>& seats) {
  Seating seating(model, layout, workers, seats);
  if (held == HeldState::kMatters) seating.seat_holders();
  seating.seat_others();
  if (held == HeldState::kMatters) seating.cover_all();
  CHECK(std::find(seats.begin(), seats.end(), kNobody) == seats.end());
}

}  // namespace perdure::parallel
