// Random mutations of legal schedules. Whatever the checker accepts is then run by a small machine
// that knows none of the checker's rules, in random order of ranks: it must come to the right end.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "parallel/rank_topology.h"
#include "parallel/schedule_check.h"
#include "parallel/schedule_makers.h"
#include "tests/parallel/plan_fixtures.h"

namespace perdure::parallel {
namespace {

using base::Rank;
using testing::below;
using testing::grid;
using testing::small_model;
using testing::unequal_layout;

enum class Stage : uint8_t { kEmpty, kInput, kForwarded, kGradient, kBackwarded };

struct Slot {
  uint32_t micro_batch = 0;
  Stage stage = Stage::kEmpty;
};

struct Machine {
  size_t at = 0;
  std::vector<Slot> slots;
  std::deque<uint32_t> activations;  // micro-batches that have come from the previous stage
  std::deque<uint32_t> gradients;
  std::multiset<uint32_t> done;  // weight gradients added
  std::multiset<uint32_t> reduced;
  bool voted = false;
  bool applied = false;
};

// Runs with sends that complete at once; says what went wrong, or nothing.
class RandomRun {
 public:
  RandomRun(const JobTopology& job, const Schedule& schedule, base::SeededRandom& random)
      : job_(job), schedule_(schedule), random_(random), machines_(job.ranks.size()) {
    for (size_t r = 0; r < machines_.size(); ++r) {
      machines_[r].slots.resize(schedule.stages[r].stash_slots);
    }
  }

  std::optional<std::string> run() {
    std::vector<uint32_t> order(machines_.size());
    for (uint32_t r = 0; r < order.size(); ++r) order[r] = r;
    bool moved = true;
    while (moved && error_.empty()) {
      moved = false;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[below(random_, i)]);
      for (const uint32_t r : order) {
        uint32_t burst = 1 + below(random_, 5);
        while (burst-- > 0 && error_.empty() && step(r)) moved = true;
      }
    }
    if (!error_.empty()) return error_;
    for (uint32_t r = 0; r < machines_.size(); ++r) {
      if (!machines_[r].applied) return "rank " + std::to_string(r) + " is stuck";
    }
    return std::nullopt;
  }

 private:
  bool fail(uint32_t r, const std::string& why) {
    error_ = "rank " + std::to_string(r) + " at " + std::to_string(machines_[r].at) + ": " + why;
    return false;
  }

  bool step(uint32_t r) {
    Machine& m = machines_[r];
    const std::vector<Instruction>& list = schedule_.stages[r].instructions;
    if (m.at == list.size()) return false;
    const Instruction& now = list[m.at];
    if (now.action == Action::kReduce || now.action == Action::kVote ||
        now.action == Action::kApply) {
      return collective(r, now);
    }
    if (now.slot >= m.slots.size()) return fail(r, "no such slot");
    const bool ran = work(r, now, m.slots[now.slot]);
    if (ran) ++m.at;
    return ran;
  }

  bool take(std::deque<uint32_t>& queue, uint32_t r, uint32_t expected) {
    if (queue.empty()) return false;
    if (queue.front() != expected) return fail(r, "took another message");
    queue.pop_front();
    return true;
  }

  bool expect(uint32_t r, const Slot& slot, const Instruction& now, Stage stage) {
    if (slot.micro_batch == now.micro_batch.value() && slot.stage == stage) return true;
    return fail(r, "the slot is not ready for " + to_string(now));
  }

  bool work(uint32_t r, const Instruction& now, Slot& slot) {
    Machine& m = machines_[r];
    const RankTopology& place = job_.ranks[r];
    const uint32_t mb = now.micro_batch.value();
    switch (now.action) {
      case Action::kReceiveActivation:
        if (slot.stage != Stage::kEmpty) return fail(r, "overwrites a slot");
        if (!take(m.activations, r, mb)) return false;
        slot = {mb, Stage::kInput};
        return true;
      case Action::kForward:
        if (place.is_first()) {
          if (slot.stage != Stage::kEmpty) return fail(r, "overwrites a slot");
          slot = {mb, Stage::kInput};
        }
        if (!expect(r, slot, now, Stage::kInput)) return false;
        slot.stage = place.is_last() ? Stage::kGradient : Stage::kForwarded;
        return true;
      case Action::kSendActivation:
        if (slot.micro_batch != mb || slot.stage < Stage::kForwarded) {
          return fail(r, "sends what is not there");
        }
        machines_[place.next.value().value()].activations.push_back(mb);
        return true;
      case Action::kReceiveGradient:
        if (!expect(r, slot, now, Stage::kForwarded)) return false;
        if (!take(m.gradients, r, mb)) return false;
        slot.stage = Stage::kGradient;
        return true;
      case Action::kBackward:
      case Action::kBackwardInput:
        if (!expect(r, slot, now, Stage::kGradient)) return false;
        slot.stage = Stage::kBackwarded;
        if (now.action == Action::kBackward) m.done.insert(mb);
        release(r, now);
        return true;
      case Action::kBackwardWeight:
        if (!expect(r, slot, now, Stage::kBackwarded)) return false;
        m.done.insert(mb);
        release(r, now);
        return true;
      case Action::kSendGradient:
        if (!expect(r, slot, now, Stage::kBackwarded)) return false;
        machines_[place.previous.value().value()].gradients.push_back(mb);
        release(r, now);
        return true;
      default:
        return fail(r, "unknown action");
    }
  }

  // A slot is free when nothing of its micro-batch is left to do.
  void release(uint32_t r, const Instruction& now) {
    Machine& m = machines_[r];
    const std::vector<Instruction>& list = schedule_.stages[r].instructions;
    for (size_t i = m.at + 1; i < list.size(); ++i) {
      if (list[i].micro_batch == now.micro_batch && list[i].action < Action::kReduce) return;
    }
    m.slots[now.slot].stage = Stage::kEmpty;
  }

  bool collective(uint32_t r, const Instruction& now) {
    Machine& m = machines_[r];
    const RankTopology& place = job_.ranks[r];
    if (m.done.size() != place.micro_batches() ||
        std::set<uint32_t>(m.done.begin(), m.done.end()).size() != m.done.size()) {
      return fail(r, "not every micro-batch once");
    }
    if (now.action == Action::kReduce) {
      if (now.index >= place.buckets.size()) return fail(r, "no such bucket");
      const uint32_t bucket = place.buckets[now.index];
      arrived_[bucket].insert(r);
      if (arrived_[bucket].size() < job_.buckets[bucket].holders.size()) return false;
      if (m.reduced.contains(bucket)) return fail(r, "reduced twice");
      m.reduced.insert(bucket);
    } else if (now.action == Action::kVote) {
      if (m.reduced.size() != place.buckets.size()) return fail(r, "not everything reduced");
      voters_.insert(r);
      if (voters_.size() < machines_.size()) return false;
      m.voted = true;
    } else {
      if (!m.voted) return fail(r, "applies without a vote");
      if (m.applied) return fail(r, "applies twice");
      if (m.at + 1 != schedule_.stages[r].instructions.size()) return fail(r, "apply is not last");
      m.applied = true;
    }
    ++m.at;
    return true;
  }

  const JobTopology& job_;
  const Schedule& schedule_;
  base::SeededRandom& random_;
  std::vector<Machine> machines_;
  std::map<uint32_t, std::set<uint32_t>> arrived_;
  std::set<uint32_t> voters_;
  std::string error_;
};

void mutate(Schedule& schedule, base::SeededRandom& random) {
  StageSchedule& stage = schedule.stages[below(random, schedule.stages.size())];
  std::vector<Instruction>& list = stage.instructions;
  if (list.size() < 2) return;
  const size_t i = below(random, list.size());
  const size_t j = below(random, list.size());
  switch (below(random, 9)) {
    case 0:
      list.erase(list.begin() + static_cast<ptrdiff_t>(i));
      break;
    case 1:
      list.insert(list.begin() + static_cast<ptrdiff_t>(j), list[i]);
      break;
    case 2:
      std::swap(list[i], list[j]);
      break;
    case 3:
      list[i].slot = below(random, stage.stash_slots + 1);
      break;
    case 4:
      list[i].micro_batch = base::MicroBatch(below(random, 9));
      break;
    case 5:
      list[i].action = static_cast<Action>(below(random, 11));
      break;
    case 6:
      stage.stash_slots = 1 + below(random, 4);
      break;
    default:
      std::swap(list[i], list[i + 1 == list.size() ? i - 1 : i + 1]);
      break;
  }
}

TEST(ScheduleFuzzTest, AcceptedSchedulesRunToTheRightEnd) {
  base::SeededRandom random(testing::test_seed());
  const ModelSpec model = small_model();
  const std::vector<Layout> layouts = {
      unequal_layout(), grid(model, {.pipelines = 1, .stages = 2, .micro_batches = 3}),
      grid(model, {.pipelines = 2, .stages = 4, .micro_batches = 6})};
  int accepted = 0;
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    const Layout& layout = layouts[below(random, layouts.size())];
    const JobTopology job = make_topology(model, layout);
    Schedule schedule = make_schedule_1f1b(model, layout);
    for (uint32_t edits = 1 + below(random, 2); edits > 0; --edits) mutate(schedule, random);
    const SendModel sends = below(random, 2) == 0 ? SendModel::kEager : SendModel::kRendezvous;
    if (!check_schedule(model, layout, schedule, sends).is_ok()) {
      ++refused;
      continue;
    }
    ++accepted;
    const std::optional<std::string> wrong = RandomRun(job, schedule, random).run();
    ASSERT_FALSE(wrong.has_value()) << "round " << round << ": " << *wrong;
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 3000);
}

TEST(ScheduleFuzzTest, StricterSendModelsAcceptLess) {
  base::SeededRandom random(testing::test_seed() + 1);
  const ModelSpec model = small_model();
  const Layout layout = grid(model, {.pipelines = 1, .stages = 3, .micro_batches = 4});
  for (int round = 0; round < 3000; ++round) {
    Schedule schedule = make_schedule_1f1b(model, layout);
    mutate(schedule, random);
    const bool eager = check_schedule(model, layout, schedule, SendModel::kEager).is_ok();
    const bool posted = check_schedule(model, layout, schedule, SendModel::kRendezvous).is_ok();
    const bool blocking = check_schedule(model, layout, schedule, SendModel::kBlocking).is_ok();
    EXPECT_TRUE(eager || !posted);
    EXPECT_TRUE(posted || !blocking);
  }
}

}  // namespace
}  // namespace perdure::parallel
