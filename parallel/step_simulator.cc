#include "parallel/step_simulator.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "parallel/layer_cost.h"
#include "parallel/rank_topology.h"

namespace perdure::parallel {
namespace {

using base::Rank;

// Arrival times of messages under way to one rank, oldest first.
struct Inbox {
  std::deque<double> activations;
  std::deque<double> gradients;
};

// Members of a collective that have come, and when the last one did.
struct Meeting {
  size_t expected = 0;
  size_t arrived = 0;
  double last_arrival = 0.0;
  bool is_open() const { return arrived == expected; }
};

class StepRun {
 public:
  StepRun(const JobTopology& job, const Schedule& schedule, const std::vector<StageTimes>& times)
      : job_(job), schedule_(schedule), times_(times), ranks_(job.ranks.size()) {
    for (const ReduceBucket& bucket : job.buckets) reductions_.push_back({bucket.holders.size()});
    vote_.expected = job.ranks.size();
  }

  StepEstimate run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        while (advance(r)) moved = true;
      }
    }
    StepEstimate estimate;
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      CHECK_EQ(ranks_[r].at, schedule_.stages[r].instructions.size());
      estimate.makespan = std::max(estimate.makespan, ranks_[r].now);
      estimate.busy.push_back(ranks_[r].busy);
      estimate.compute_end.push_back(ranks_[r].compute_end);
    }
    return estimate;
  }

 private:
  struct RankState {
    size_t at = 0;
    double now = 0.0;
    double busy = 0.0;
    double compute_end = 0.0;
    bool waits_in_meeting = false;
    Inbox inbox;
  };

  void compute(RankState& rank, double duration) {
    rank.now += duration;
    rank.busy += duration;
  }

  bool receive(RankState& rank, std::deque<double>& messages) {
    if (messages.empty()) return false;
    rank.now = std::max(rank.now, messages.front());
    messages.pop_front();
    return true;
  }

  bool meet(RankState& rank, Meeting& meeting, double duration) {
    if (!rank.waits_in_meeting) {
      ++meeting.arrived;
      meeting.last_arrival = std::max(meeting.last_arrival, rank.now);
      rank.waits_in_meeting = true;
    }
    if (!meeting.is_open()) return false;
    rank.waits_in_meeting = false;
    rank.now = meeting.last_arrival + duration;
    return true;
  }

  bool run_backward(RankState& rank, double duration) {
    compute(rank, duration);
    rank.compute_end = rank.now;
    return true;
  }

  // Runs the next instruction of a rank if what it waits for is there.
  bool advance(uint32_t r) {
    RankState& rank = ranks_[r];
    const std::vector<Instruction>& list = schedule_.stages[r].instructions;
    if (rank.at == list.size()) return false;
    const Instruction& next = list[rank.at];
    const StageTimes& t = times_[r];
    const RankTopology& topology = job_.ranks[r];
    bool done = true;
    switch (next.action) {
      case Action::kForward:
        compute(rank, t.forward);
        break;
      case Action::kBackward:
        run_backward(rank, t.backward_input + t.backward_weight);
        break;
      case Action::kBackwardInput:
        run_backward(rank, t.backward_input);
        break;
      case Action::kBackwardWeight:
        run_backward(rank, t.backward_weight);
        break;
      case Action::kSendActivation:
        ranks_[topology.next->value()].inbox.activations.push_back(rank.now + t.send_activation);
        break;
      case Action::kSendGradient:
        ranks_[topology.previous->value()].inbox.gradients.push_back(rank.now + t.send_gradient);
        break;
      case Action::kReceiveActivation:
        done = receive(rank, rank.inbox.activations);
        break;
      case Action::kReceiveGradient:
        done = receive(rank, rank.inbox.gradients);
        break;
      case Action::kReduce:
        done = meet(rank, reductions_[topology.buckets.at(next.index)],
                    t.reduce.empty() ? 0.0 : t.reduce.at(next.index));
        break;
      case Action::kVote:
        done = meet(rank, vote_, t.vote);
        break;
      case Action::kApply:
        compute(rank, t.apply);
        break;
    }
    if (done) ++rank.at;
    return done;
  }

  const JobTopology& job_;
  const Schedule& schedule_;
  const std::vector<StageTimes>& times_;
  std::vector<RankState> ranks_;
  std::vector<Meeting> reductions_;
  Meeting vote_;
};

const LinkSpec& slowest_link(const ClusterSpec& cluster, const std::vector<Rank>& members) {
  for (size_t i = 1; i < members.size(); ++i) {
    if (cluster.node_of(members[i]) != cluster.node_of(members[0])) return cluster.between_nodes;
  }
  return cluster.inside_node;
}

double ring_seconds(const LinkSpec& link, double bytes, size_t members) {
  if (members < 2) return 0.0;
  const double hops = 2.0 * static_cast<double>(members - 1);
  return hops *
         (link.latency_seconds + bytes / static_cast<double>(members) / link.bytes_per_second);
}

}  // namespace

double StepEstimate::idle_fraction() const {
  double sum = 0.0;
  for (const double b : busy) sum += b;
  if (makespan <= 0.0) return 0.0;
  return 1.0 - sum / (makespan * static_cast<double>(busy.size()));
}

StepEstimate simulate_step(const ModelSpec& model, const Layout& layout, const Schedule& schedule,
                           const std::vector<StageTimes>& times) {
  const JobTopology job = make_topology(model, layout);
  CHECK_EQ(schedule.stages.size(), job.ranks.size());
  CHECK_EQ(times.size(), job.ranks.size());
  return StepRun(job, schedule, times).run();
}

std::vector<StageTimes> estimate_times(const ModelSpec& model, const Layout& layout,
                                       const ClusterSpec& cluster, const WorkloadOptions& options) {
  CHECK_GE(cluster.devices(), layout.ranks());
  const JobTopology job = make_topology(model, layout);
  const std::vector<LayerCost> costs = layer_costs(model, options.batch);
  const int64_t boundary_bytes = costs.front().boundary_bytes;
  const double rate = cluster.device_flops_per_second;
  // The vote is a few hundred bytes: latency, up and down a tree.
  const double vote = layout.ranks() < 2 ? 0.0
                                         : 2.0 * std::ceil(std::log2(layout.ranks())) *
                                               cluster.between_nodes.latency_seconds;
  std::vector<StageTimes> times(layout.ranks());
  for (uint32_t r = 0; r < times.size(); ++r) {
    StageTimes& t = times[r];
    const StagePlace& place = layout.stage(Rank(r));
    for (uint32_t l = place.layer_begin; l < place.layer_end; ++l) {
      t.forward += costs[l].forward_flops / rate;
      t.backward_input += costs[l].backward_input_flops / rate;
      t.backward_weight += costs[l].backward_weight_flops / rate;
    }
    const RankTopology& topology = job.ranks[r];
    if (topology.next) {
      t.send_activation = cluster.link(Rank(r), *topology.next).transfer_seconds(boundary_bytes);
    }
    if (topology.previous) {
      t.send_gradient = cluster.link(Rank(r), *topology.previous).transfer_seconds(boundary_bytes);
    }
    double held = 0.0;
    for (const uint32_t b : topology.buckets) {
      double elements = 0.0;
      for (const base::TensorId id : job.buckets[b].tensors) {
        elements += static_cast<double>(model.tensor(id).elements());
      }
      held += elements;
      const std::vector<Rank>& holders = job.buckets[b].holders;
      t.reduce.push_back(ring_seconds(slowest_link(cluster, holders),
                                      elements * options.gradient_bytes_per_element,
                                      holders.size()));
    }
    t.vote = vote;
    t.apply = held * kElementFlops / rate;
  }
  return times;
}

}  // namespace perdure::parallel
