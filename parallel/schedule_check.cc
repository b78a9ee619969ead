#include "parallel/schedule_check.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "parallel/rank_topology.h"
#include "parallel/schedule_progress.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using base::Status;

constexpr size_t kNever = SIZE_MAX;
constexpr size_t kActions = static_cast<size_t>(Action::kApply) + 1;

// Checks the list of one rank by itself.
class StageCheck {
 public:
  StageCheck(const RankTopology& topology, const StageSchedule& stage)
      : topology_(topology), stage_(stage) {}

  Status run() {
    RETURN_IF_ERROR(collect());
    for (uint32_t m = topology_.micro_batch_begin; m < topology_.micro_batch_end; ++m) {
      RETURN_IF_ERROR(check_complete(m));
      RETURN_IF_ERROR(check_order(m));
    }
    RETURN_IF_ERROR(check_slots());
    return check_tail();
  }

 private:
  Status error_at(size_t i, std::string_view reason) const {
    std::string text = "schedule: rank " + std::to_string(stage_.rank.value());
    if (i < stage_.instructions.size()) {
      text += ", instruction " + std::to_string(i) + " (" + to_string(stage_.instructions[i]) + ")";
    }
    return base::invalid_argument(text + ": " + std::string(reason));
  }

  size_t& when(uint32_t micro_batch, Action action) {
    return when_[(micro_batch - topology_.micro_batch_begin) * kActions +
                 static_cast<size_t>(action)];
  }
  static bool is_collective(Action a) {
    return a == Action::kReduce || a == Action::kVote || a == Action::kApply;
  }

  // Notes where each action of each micro-batch is; refuses what is foreign or double.
  Status collect() {
    when_.assign(topology_.micro_batches() * kActions, kNever);
    for (size_t i = 0; i < stage_.instructions.size(); ++i) {
      const Instruction& now = stage_.instructions[i];
      if (is_collective(now.action)) continue;
      const uint32_t m = now.micro_batch.value();
      if (m < topology_.micro_batch_begin || m >= topology_.micro_batch_end) {
        return error_at(i, "micro-batch of another pipeline");
      }
      if (when(m, now.action) != kNever) return error_at(i, "done twice");
      when(m, now.action) = i;
      RETURN_IF_ERROR(check_link(i));
    }
    return Status::ok();
  }

  Status check_link(size_t i) const {
    const Action action = stage_.instructions[i].action;
    const bool backwards = action == Action::kReceiveActivation || action == Action::kSendGradient;
    const bool onwards = action == Action::kSendActivation || action == Action::kReceiveGradient;
    if (backwards && topology_.is_first()) return error_at(i, "first stage has no stage before it");
    if (onwards && topology_.is_last()) return error_at(i, "last stage has no stage after it");
    return Status::ok();
  }

  bool has(uint32_t m, Action action) { return when(m, action) != kNever; }

  Status missing(uint32_t m, Action action) const {
    return error_at(
        kNever,
        "missing " + to_string(Instruction{.action = action, .micro_batch = base::MicroBatch(m)}));
  }

  Status check_complete(uint32_t m) {
    if (!has(m, Action::kForward)) return missing(m, Action::kForward);
    const bool input = has(m, Action::kBackwardInput);
    const bool weight = has(m, Action::kBackwardWeight);
    if (has(m, Action::kBackward)) {
      if (input) return error_at(when(m, Action::kBackwardInput), "done twice, by B too");
      if (weight) return error_at(when(m, Action::kBackwardWeight), "done twice, by B too");
    } else if (!input && !weight) {
      return missing(m, Action::kBackward);
    } else if (!input) {
      return missing(m, Action::kBackwardInput);
    } else if (!weight) {
      return missing(m, Action::kBackwardWeight);
    }
    for (const Action action : {Action::kReceiveActivation, Action::kSendGradient}) {
      if (!topology_.is_first() && !has(m, action)) return missing(m, action);
    }
    for (const Action action : {Action::kSendActivation, Action::kReceiveGradient}) {
      if (!topology_.is_last() && !has(m, action)) return missing(m, action);
    }
    return Status::ok();
  }

  // `first` must stand before `then`, where both exist.
  Status check_before(uint32_t m, Action first, Action then) {
    if (!has(m, first) || !has(m, then) || when(m, first) < when(m, then)) return Status::ok();
    return error_at(when(m, then),
                    "must come after " + to_string(stage_.instructions[when(m, first)]));
  }

  Status check_order(uint32_t m) {
    const Action backward = has(m, Action::kBackward) ? Action::kBackward : Action::kBackwardInput;
    RETURN_IF_ERROR(check_before(m, Action::kReceiveActivation, Action::kForward));
    RETURN_IF_ERROR(check_before(m, Action::kForward, Action::kSendActivation));
    RETURN_IF_ERROR(check_before(m, Action::kForward, backward));
    RETURN_IF_ERROR(check_before(m, Action::kForward, Action::kReceiveGradient));
    RETURN_IF_ERROR(check_before(m, Action::kReceiveGradient, backward));
    RETURN_IF_ERROR(check_before(m, backward, Action::kSendGradient));
    return check_before(m, Action::kBackwardInput, Action::kBackwardWeight);
  }

  // A slot belongs to a micro-batch from the first to the last instruction that names it.
  Status check_slots() {
    std::vector<size_t> last(topology_.micro_batches(), 0);
    for (size_t i = 0; i < stage_.instructions.size(); ++i) {
      const Instruction& now = stage_.instructions[i];
      if (is_collective(now.action)) continue;
      if (now.slot >= stage_.stash_slots) {
        return error_at(
            i, "slot " + std::to_string(now.slot) + " of " + std::to_string(stage_.stash_slots));
      }
      last[now.micro_batch.value() - topology_.micro_batch_begin] = i;
    }
    std::vector<uint32_t> slot_of(topology_.micro_batches(), UINT32_MAX);
    std::vector<uint32_t> owner(stage_.stash_slots, UINT32_MAX);
    for (size_t i = 0; i < stage_.instructions.size(); ++i) {
      const Instruction& now = stage_.instructions[i];
      if (is_collective(now.action)) continue;
      const uint32_t m = now.micro_batch.value() - topology_.micro_batch_begin;
      if (slot_of[m] == UINT32_MAX) slot_of[m] = now.slot;
      if (slot_of[m] != now.slot) {
        return error_at(i, "its activations are in slot " + std::to_string(slot_of[m]) +
                               ", not in slot " + std::to_string(now.slot));
      }
      if (owner[now.slot] == UINT32_MAX) owner[now.slot] = m;
      if (owner[now.slot] != m) {
        return error_at(i, "slot " + std::to_string(now.slot) + " still holds micro-batch " +
                               std::to_string(owner[now.slot] + topology_.micro_batch_begin));
      }
      if (last[m] == i) owner[now.slot] = UINT32_MAX;
    }
    return Status::ok();
  }

  // After the last backward: each bucket once; then the vote; then, as the very last, the apply.
  Status check_tail() const {
    std::vector<bool> reduced(topology_.buckets.size(), false);
    size_t reductions = 0;
    size_t votes = 0;
    size_t applies = 0;
    for (size_t i = 0; i < stage_.instructions.size(); ++i) {
      const Instruction& now = stage_.instructions[i];
      if (applies > 0) return error_at(i, "after apply");
      if (votes > 0 && now.action != Action::kApply) return error_at(i, "after the vote");
      if (now.action == Action::kReduce) {
        if (now.index >= reduced.size()) {
          return error_at(i, "the rank has " + std::to_string(reduced.size()) + " buckets");
        }
        if (reduced[now.index]) return error_at(i, "done twice");
        reduced[now.index] = true;
        ++reductions;
      } else if (now.action == Action::kVote) {
        if (reductions < reduced.size()) return error_at(i, "before all buckets are reduced");
        ++votes;
      } else if (now.action == Action::kApply) {
        if (votes == 0) return error_at(i, "before the vote");
        ++applies;
      } else if (reductions > 0 && writes_gradients(now.action)) {
        return error_at(i, "after a reduction of gradients that it adds to");
      }
    }
    if (reductions < reduced.size()) return error_at(kNever, "a bucket is not reduced");
    if (votes == 0) return error_at(kNever, "missing vote");
    if (applies == 0) return error_at(kNever, "missing apply");
    return Status::ok();
  }

  // Every micro-batch adds to every tensor of the rank.
  static bool writes_gradients(Action action) {
    return action == Action::kBackward || action == Action::kBackwardWeight;
  }

  const RankTopology& topology_;
  const StageSchedule& stage_;
  std::vector<size_t> when_;  // [micro-batch][action] -> instruction
};

std::vector<Instruction> only(const StageSchedule& stage, Action action) {
  std::vector<Instruction> list;
  std::copy_if(stage.instructions.begin(), stage.instructions.end(), std::back_inserter(list),
               [action](const Instruction& i) { return i.action == action; });
  return list;
}

struct LinkEnds {
  Rank sender;
  Action send;
  Rank receiver;
  Action receive;
};

// Messages carry no name on a link: the nth receive takes the nth send.
Status check_link_order(const Schedule& schedule, const LinkEnds& link) {
  const std::vector<Instruction> sent = only(schedule.stages[link.sender.value()], link.send);
  const std::vector<Instruction> taken = only(schedule.stages[link.receiver.value()], link.receive);
  CHECK_EQ(sent.size(), taken.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i].micro_batch == taken[i].micro_batch) continue;
    return base::invalid_argument(
        "schedule: rank " + std::to_string(link.receiver.value()) + " (" + to_string(taken[i]) +
        "): message " + std::to_string(i) + " of rank " + std::to_string(link.sender.value()) +
        " is another one (" + to_string(sent[i]) + "): sends and receives differ in order");
  }
  return Status::ok();
}

}  // namespace

Status check_schedule(const ModelSpec& model, const Layout& layout, const Schedule& schedule,
                      SendModel sends) {
  RETURN_IF_ERROR(check_layout(model, layout));
  const JobTopology job = make_topology(model, layout);
  if (schedule.stages.size() != job.ranks.size()) {
    return base::invalid_argument("schedule: " + std::to_string(schedule.stages.size()) +
                                  " ranks, the layout has " + std::to_string(job.ranks.size()));
  }
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    if (schedule.stages[r].rank != Rank(r)) {
      return base::invalid_argument("schedule: entry " + std::to_string(r) + " is of rank " +
                                    std::to_string(schedule.stages[r].rank.value()));
    }
    RETURN_IF_ERROR(StageCheck(job.ranks[r], schedule.stages[r]).run());
  }
  for (uint32_t r = 0; r < job.ranks.size(); ++r) {
    if (job.ranks[r].is_last()) continue;
    const Rank next = *job.ranks[r].next;
    RETURN_IF_ERROR(check_link_order(
        schedule, {Rank(r), Action::kSendActivation, next, Action::kReceiveActivation}));
    RETURN_IF_ERROR(check_link_order(
        schedule, {next, Action::kSendGradient, Rank(r), Action::kReceiveGradient}));
  }
  return check_progress(job, schedule, sends);
}

}  // namespace perdure::parallel
