#include "tests/recovery/machine_harness.h"

#include <algorithm>

namespace perdure::recovery {

CommittedState committed_at(uint64_t step) {
  return {.step = base::Step(step),
          .samples_consumed = step * 8,
          .applied_steps = step,
          .calibrated = static_cast<uint8_t>(step > 0 ? 1 : 0)};
}

std::vector<TensorDigest> digests_at(const std::vector<base::TensorId>& tensors, uint64_t step) {
  std::vector<TensorDigest> result;
  for (const base::TensorId tensor : tensors) result.push_back({tensor, digest_at(tensor, step)});
  return result;
}

MachineTest::MachineTest() {
  options_.model = testing::small_model();
  options_.pipelines = 2;
  options_.stages = 2;
  options_.micro_batches = 8;
  options_.layer_cost = parallel::relative_layer_costs(options_.model);
}

void MachineTest::begin(const std::optional<MachineMemory>& memory) {
  machine_.emplace(options_);
  if (memory.has_value() && memory->decided.has_value()) {
    decided_.insert(memory->decided->epoch);
    if (memory->active) activated_.insert(memory->decided->epoch);
  }
  machine_->begin(now_, memory);
}

void MachineTest::check_order(const Send& send) {
  EXPECT_EQ(send.epoch, machine_->epoch());
  EXPECT_FALSE(send.to.empty());
  if (std::holds_alternative<OrderPrepare>(send.order) ||
      std::holds_alternative<OrderLoad>(send.order)) {
    EXPECT_TRUE(decided_.contains(send.epoch)) << "a plan is sent that was not recorded";
  }
  if (std::holds_alternative<OrderGo>(send.order)) {
    EXPECT_TRUE(activated_.contains(send.epoch)) << "go before it was recorded";
  }
  if (std::holds_alternative<OrderFence>(send.order)) {
    EXPECT_FALSE(decided_.contains(send.epoch)) << "an epoch number is used twice";
  }
}

// A source that is bad is found out when it is read, and not offered again.
void MachineTest::restore_body(Body& body, const OrderRestore& order) {
  StateReport& state = body.state;
  if (!(state.committed == order.target)) state.tensors.clear();
  state.vote = {};
  state.pending = {};
  state.committed = order.target;
  for (const TensorDigest& wanted : order.tensors) {
    if (std::find(body.bad.begin(), body.bad.end(), wanted) == body.bad.end()) {
      state.tensors.push_back(wanted);
      continue;
    }
    for (StateOffer& offer : state.offers) std::erase(offer.tensors, wanted);
  }
  std::sort(state.tensors.begin(), state.tensors.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.tensor < b.tensor; });
  state.has_state = state.tensors.empty() ? 0 : 1;
}

// What a good worker would be in after the order; it answers when the test says so.
void MachineTest::follow(const Send& send) {
  for (const PlanMember& member : send.to) {
    const auto found = bodies_.find(member.worker.value());
    if (found == bodies_.end() || found->second.id.incarnation != member.incarnation) continue;
    Body& body = found->second;
    body.epoch = std::max(body.epoch, send.epoch);
    if (const auto* fence = std::get_if<OrderFence>(&send.order)) {
      body.does = MemberDoes::kNothing;
      body.plan.reset();
      body.tells_offers = fence->with_offers;
    } else if (const auto* restore = std::get_if<OrderRestore>(&send.order)) {
      restore_body(body, *restore);
    } else if (const auto* prepare = std::get_if<OrderPrepare>(&send.order)) {
      body.plan = prepare->plan;
    } else if (const auto* apply = std::get_if<OrderApply>(&send.order)) {
      if (body.state.pending != apply->vote.id) continue;
      const uint64_t step = apply->vote.step.value();
      body.state.committed = committed_at(step);
      body.state.vote = std::exchange(body.state.pending, {});
      for (TensorDigest& d : body.state.tensors) d.digest = digest_at(d.tensor, step);
    } else if (std::holds_alternative<OrderLoad>(send.order)) {
      const uint64_t step = body.plan->resume.step.value();
      body.state = {
          .has_state = 1, .committed = body.plan->resume, .offers = std::move(body.state.offers)};
      body.state.tensors =
          digests_at(body.plan->layout.tensors(options_.model, rank(member.worker.value())), step);
      body.does = MemberDoes::kLoaded;
    } else if (std::holds_alternative<OrderGo>(send.order)) {
      body.does = MemberDoes::kRunning;
    }
  }
}

void MachineTest::feed(const MachineEvent& event) {
  for (MachineAction& action : machine_->step(event, now_)) {
    EXPECT_FALSE(outcome_.has_value()) << "an action after the end";
    if (const auto* decided = std::get_if<RecordDecided>(&action)) {
      EXPECT_OK(check_plan(options_.model, decided->plan));
      EXPECT_TRUE(decided_.insert(decided->plan.epoch).second) << "decided twice";
    } else if (const auto* active = std::get_if<RecordActive>(&action)) {
      EXPECT_TRUE(activated_.insert(active->epoch).second) << "active twice";
      EXPECT_EQ(active->epoch, *activated_.rbegin()) << "an old epoch became active";
    } else if (const auto* send = std::get_if<Send>(&action)) {
      check_order(*send);
      follow(*send);
    } else if (const auto* end = std::get_if<EndMember>(&action)) {
      bodies_.erase(end->member.worker.value());
    } else if (const auto* job = std::get_if<EndJob>(&action)) {
      outcome_ = job->status;
    }
    actions_.push_back(std::move(action));
  }
}

void MachineTest::pass(base::Nanos time) {
  const base::Nanos until = now_ + time;
  while (machine_->next_deadline() <= until) {
    now_ = std::max(now_, machine_->next_deadline());
    feed(Tick{});
  }
  now_ = until;
}

void MachineTest::up(uint32_t worker) {
  bodies_[worker] = {
      .id = {base::WorkerId(worker), base::Incarnation(next_incarnation_++), base::NodeId(worker)}};
  up_again(worker);
}

void MachineTest::up_again(uint32_t worker) {
  const Body& body = bodies_.at(worker);
  feed(MemberUp{body.id, body.epoch, body.does});
}

void MachineTest::lost_sight(uint32_t worker) {
  const PlanMember id = bodies_.at(worker).id;
  feed(MemberDown{
      .worker = id.worker, .incarnation = id.incarnation, .how = "no beat", .has_ended = false});
}

void MachineTest::down(uint32_t worker) {
  const PlanMember id = bodies_.at(worker).id;
  bodies_.erase(worker);
  feed(MemberDown{id.worker, id.incarnation, "killed"});
}

void MachineTest::start_four() {
  begin();
  for (uint32_t w = 0; w < 4; ++w) up(w);
}

void MachineTest::answer(uint32_t worker) {
  const Body& body = bodies_.at(worker);
  switch (phase()) {
    case Phase::kCollecting:
    case Phase::kRestoring: {
      StateReport told = body.state;
      if (!body.tells_offers) told.offers.clear();
      feed(StateTold{speaker(worker), told});
      break;
    }
    case Phase::kResolving:
      if (ordered<OrderVote>().contains(worker) && ordered<OrderApply>().empty()) {
        feed(VoteTold{speaker(worker),
                      {.step = body.state.committed.step, .id = body.state.vote, .words = {1, 2}}});
      } else if (ordered<OrderApply>().contains(worker)) {
        feed(StateTold{speaker(worker), body.state});
      }
      break;
    case Phase::kPreparing:
      if (body.plan.has_value()) feed(Prepared{speaker(worker), {std::byte(worker)}});
      break;
    case Phase::kLoading:
      if (body.does == MemberDoes::kLoaded)
        feed(Loaded{speaker(worker), {body.state.committed, body.state.tensors}});
      break;
    case Phase::kHolding:
      feed(Stopped{speaker(worker), base::Status::ok()});
      break;
    default:
      break;
  }
}

void MachineTest::answer_all(const std::set<uint32_t>& but) {
  const Phase asked = phase();
  const uint64_t asked_in = epoch();
  std::vector<uint32_t> workers;
  for (const auto& [worker, body] : bodies_) {
    if (!but.contains(worker)) workers.push_back(worker);
  }
  for (const uint32_t worker : workers) {
    if (phase() != asked || epoch() != asked_in) return;
    if (bodies_.contains(worker)) answer(worker);
  }
}

void MachineTest::run_to(Phase wanted) {
  for (int i = 0; i < 20 && phase() != wanted; ++i) answer_all();
  ASSERT_EQ(phase(), wanted) << to_string(phase());
}

void MachineTest::commit(uint64_t step, const std::set<uint32_t>& not_yet) {
  const VoteId vote{.epoch = machine_->epoch(), .attempt = 1};
  for (const uint32_t worker : plan_workers()) {
    StateReport& state = bodies_.at(worker).state;
    ASSERT_EQ(state.committed.step.next(), base::Step(step)) << "worker " << worker;
    if (not_yet.contains(worker)) {
      state.pending = vote;
      continue;
    }
    state.committed = committed_at(step);
    state.vote = vote;
    state.pending = {};
    for (TensorDigest& d : state.tensors) d.digest = digest_at(d.tensor, step);
  }
  const uint32_t first = machine_->plan()->members[0].worker.value();
  if (!not_yet.contains(first)) feed(StepSeen{speaker(first), base::Step(step), machine_->epoch()});
}

void MachineTest::finish(uint32_t worker) {
  Body& body = bodies_.at(worker);
  body.does = MemberDoes::kFinished;
  feed(MemberFinished{speaker(worker), body.state.committed.step, 1, 2});
}

std::set<uint32_t> MachineTest::plan_workers() const {
  std::set<uint32_t> result;
  if (!machine_->plan().has_value()) return result;
  for (const PlanMember& member : machine_->plan()->members) result.insert(member.worker.value());
  return result;
}

base::Rank MachineTest::rank(uint32_t worker) const {
  return *rank_of(*machine_->plan(), base::WorkerId(worker), bodies_.at(worker).id.incarnation);
}

std::set<uint32_t> MachineTest::ended() const {
  std::set<uint32_t> result;
  for (const MachineAction& action : actions_) {
    if (const auto* end = std::get_if<EndMember>(&action))
      result.insert(end->member.worker.value());
  }
  return result;
}

std::string MachineTest::why_ended(uint32_t worker) const {
  for (const MachineAction& action : actions_) {
    const auto* end = std::get_if<EndMember>(&action);
    if (end != nullptr && end->member.worker.value() == worker) return end->why;
  }
  return "";
}

std::vector<std::string> MachineTest::kinds() const {
  std::vector<std::string> result;
  for (const MachineAction& action : actions_) {
    if (const auto* explain = std::get_if<Explain>(&action))
      result.push_back(explain->event.kind());
  }
  return result;
}

const base::Event* MachineTest::event(const std::string& kind) const {
  const base::Event* newest = nullptr;
  for (const MachineAction& action : actions_) {
    const auto* explain = std::get_if<Explain>(&action);
    if (explain != nullptr && explain->event.kind() == kind) newest = &explain->event;
  }
  return newest;
}

std::string MachineTest::field(const std::string& kind, const std::string& key) const {
  const base::Event* found = event(kind);
  if (found == nullptr) return "no event " + kind;
  for (const auto& [name, value] : found->fields()) {
    if (name != key) continue;
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    if (const auto* number = std::get_if<uint64_t>(&value)) return std::to_string(*number);
  }
  return "no field " + key;
}

}  // namespace perdure::recovery
