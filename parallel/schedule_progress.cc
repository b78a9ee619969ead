#include "parallel/schedule_progress.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace perdure::parallel {
namespace {

using base::Rank;
using base::Status;

enum class Traffic : uint8_t { kActivation, kGradient };

bool is_send(Action a) { return a == Action::kSendActivation || a == Action::kSendGradient; }
bool is_receive(Action a) {
  return a == Action::kReceiveActivation || a == Action::kReceiveGradient;
}
Traffic traffic_of(Action a) {
  return a == Action::kSendActivation || a == Action::kReceiveActivation ? Traffic::kActivation
                                                                         : Traffic::kGradient;
}

// Where one rank is, and what it has on the way.
struct RankState {
  size_t at = 0;               // next instruction
  uint32_t sent[2] = {0, 0};   // messages posted, by Traffic
  uint32_t taken[2] = {0, 0};  // messages received, by Traffic
  // Slot -> numbers of messages posted from it that may not have been taken yet, by Traffic.
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> unfinished;
  std::vector<size_t> reduce_at;  // instruction that reduces each bucket of the rank
  size_t vote_at = 0;
};

class Progress {
 public:
  Progress(const JobTopology& job, const Schedule& schedule, SendModel sends)
      : job_(job), schedule_(schedule), sends_(sends), ranks_(job.ranks.size()) {
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      const std::vector<Instruction>& list = schedule.stages[r].instructions;
      ranks_[r].reduce_at.resize(job.ranks[r].buckets.size());
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].action == Action::kReduce) ranks_[r].reduce_at.at(list[i].index) = i;
        if (list[i].action == Action::kVote) ranks_[r].vote_at = i;
      }
    }
  }

  Status run() {
    bool moved = true;
    while (moved) {
      moved = false;
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        while (advance(Rank(r))) moved = true;
      }
    }
    for (uint32_t r = 0; r < ranks_.size(); ++r) {
      if (!finished(Rank(r))) return explain(Rank(r));
    }
    return Status::ok();
  }

 private:
  RankState& state(Rank rank) { return ranks_[rank.value()]; }
  bool finished(Rank rank) {
    return state(rank).at == schedule_.stages[rank.value()].instructions.size();
  }
  const Instruction& current(Rank rank) {
    return schedule_.stages[rank.value()].instructions[state(rank).at];
  }
  const RankTopology& topology(Rank rank) const { return job_.at(rank); }

  Rank receiver(Rank sender, Traffic traffic) const {
    return traffic == Traffic::kActivation ? *topology(sender).next : *topology(sender).previous;
  }
  Rank sender(Rank receiver_rank, Traffic traffic) const {
    return traffic == Traffic::kActivation ? *topology(receiver_rank).previous
                                           : *topology(receiver_rank).next;
  }

  // The receiver stands before the receive of message `number` (or is past it).
  bool receive_reached(Rank to, Traffic traffic, uint32_t number) {
    const uint32_t taken = state(to).taken[static_cast<size_t>(traffic)];
    if (taken > number) return true;
    if (taken < number || finished(to)) return false;
    const Action action = current(to).action;
    return is_receive(action) && traffic_of(action) == traffic;
  }

  // What the rank waits for at its current instruction; it runs when the list is empty.
  std::vector<Rank> waits_for(Rank rank) {
    const Instruction& now = current(rank);
    std::vector<Rank> who = waits_for_slot(rank, now);
    if (is_send(now.action) && sends_ == SendModel::kBlocking) {
      const Traffic traffic = traffic_of(now.action);
      const Rank to = receiver(rank, traffic);
      if (!receive_reached(to, traffic, state(rank).sent[static_cast<size_t>(traffic)])) {
        who.push_back(to);
      }
    } else if (is_receive(now.action)) {
      const Traffic traffic = traffic_of(now.action);
      const size_t t = static_cast<size_t>(traffic);
      const Rank from = sender(rank, traffic);
      if (state(from).sent[t] <= state(rank).taken[t]) who.push_back(from);
    } else if (now.action == Action::kReduce) {
      const uint32_t bucket = topology(rank).buckets[now.index];
      for (const Rank holder : job_.buckets[bucket].holders) {
        if (!reached_reduce(holder, bucket)) who.push_back(holder);
      }
    } else if (now.action == Action::kVote) {
      for (uint32_t r = 0; r < ranks_.size(); ++r) {
        if (!reached_vote(Rank(r))) who.push_back(Rank(r));
      }
    }
    return who;
  }

  // Filling a slot overwrites what earlier sends from it may still be reading.
  std::vector<Rank> waits_for_slot(Rank rank, const Instruction& now) {
    const bool fills = now.action == Action::kReceiveActivation ||
                       (now.action == Action::kForward && topology(rank).is_first());
    if (!fills || sends_ != SendModel::kRendezvous) return {};
    const auto found = state(rank).unfinished.find(now.slot);
    if (found == state(rank).unfinished.end()) return {};
    std::vector<Rank> who;
    const auto [activations, gradients] = found->second;
    if (activations > 0) {
      const Rank to = *topology(rank).next;
      if (!receive_reached(to, Traffic::kActivation, activations - 1)) who.push_back(to);
    }
    if (gradients > 0) {
      const Rank to = *topology(rank).previous;
      if (!receive_reached(to, Traffic::kGradient, gradients - 1)) who.push_back(to);
    }
    return who;
  }

  // A rank has reached a collective when it stands before it or is past it.
  bool reached_reduce(Rank rank, uint32_t bucket) {
    const std::vector<uint32_t>& mine = topology(rank).buckets;
    const auto found = std::lower_bound(mine.begin(), mine.end(), bucket);
    CHECK(found != mine.end() && *found == bucket);
    return state(rank).at >= state(rank).reduce_at[static_cast<size_t>(found - mine.begin())];
  }
  bool reached_vote(Rank rank) { return state(rank).at >= state(rank).vote_at; }

  bool advance(Rank rank) {
    if (finished(rank) || !waits_for(rank).empty()) return false;
    const Instruction& now = current(rank);
    RankState& mine = state(rank);
    if (is_send(now.action)) {
      const uint32_t posted = ++mine.sent[static_cast<size_t>(traffic_of(now.action))];
      auto& [activations, gradients] = mine.unfinished[now.slot];
      (traffic_of(now.action) == Traffic::kActivation ? activations : gradients) = posted;
    } else if (is_receive(now.action)) {
      ++mine.taken[static_cast<size_t>(traffic_of(now.action))];
    }
    ++mine.at;
    return true;
  }

  std::string describe(Rank rank) {
    if (finished(rank)) return "rank " + std::to_string(rank.value()) + " (finished)";
    return "rank " + std::to_string(rank.value()) + " at instruction " +
           std::to_string(state(rank).at) + " (" + to_string(current(rank)) + ")";
  }

  // Follows "waits for" from a stuck rank until it comes back to a rank that was seen.
  Status explain(Rank stuck) {
    std::vector<Rank> path{stuck};
    std::string text = "deadlock: " + describe(stuck);
    while (!finished(path.back())) {
      const std::vector<Rank> who = waits_for(path.back());
      CHECK(!who.empty());
      text += " waits for " + describe(who.front());
      if (std::find(path.begin(), path.end(), who.front()) != path.end()) break;
      path.push_back(who.front());
    }
    return base::invalid_argument("schedule: " + text);
  }

  const JobTopology& job_;
  const Schedule& schedule_;
  const SendModel sends_;
  std::vector<RankState> ranks_;
};

}  // namespace

Status check_progress(const JobTopology& job, const Schedule& schedule, SendModel sends) {
  return Progress(job, schedule, sends).run();
}

}  // namespace perdure::parallel
