#include "chaos/cluster/fake_engine.h"

#include <algorithm>
#include <iterator>

#include "base/fault_point.h"
#include "base/hash.h"
#include "base/sleep.h"
#include "parallel/sample_mark.h"

namespace perdure::chaos::cluster {

namespace protocol = runtime::protocol;

uint64_t FakeJob::seed_digest(base::TensorId tensor) const {
  return base::mix64(0x5eed0000 + tensor.value());
}

uint64_t FakeJob::next_digest(uint64_t digest, uint64_t step) {
  return base::mix64(digest ^ (step * 0x9E3779B97F4A7C15));
}

uint64_t FakeJob::digest_after(base::TensorId tensor, uint64_t step) const {
  while (digests_.size() <= step) {
    std::vector<uint64_t> next(model.tensors.size());
    for (uint32_t t = 0; t < next.size(); ++t) {
      next[t] = digests_.empty() ? seed_digest(base::TensorId(t))
                                 : next_digest(digests_.back()[t], digests_.size());
    }
    digests_.push_back(std::move(next));
  }
  return digests_[step].at(tensor.value());
}

uint64_t FakeJob::state_digest_after(uint64_t step) const {
  while (state_digests_.size() <= step) {
    const uint64_t s = state_digests_.size();
    uint64_t sum = s;
    for (uint32_t t = 0; t < model.tensors.size(); ++t)
      sum = base::mix64(sum ^ digest_after(base::TensorId(t), s));
    state_digests_.push_back(sum);
  }
  return state_digests_[step];
}

FakeEngine::FakeEngine(SimHost& host, base::WorkerId worker, base::Incarnation incarnation,
                       const FakeJob& job, DataPlane& plane, NodeMemory& memory,
                       EngineObserver& observer, uint64_t seed)
    : host_(host),
      worker_(worker),
      incarnation_(incarnation),
      job_(job),
      plane_(plane),
      memory_(memory),
      reports_(job.snapshots ? memory.reports(worker) : own_reports_),
      observer_(observer),
      random_(seed, 13) {
  plane_.attach(*this);
}

FakeEngine::~FakeEngine() { plane_.detach(*this); }

base::Task<void> FakeEngine::pause(base::Nanos mean) {
  const auto time = static_cast<int64_t>(random_.exponential(static_cast<double>(mean.count())));
  const base::Status slept = co_await base::sleep_for(host_.clock(), base::Nanos(time));
  CHECK(slept.is_ok());
}

void FakeEngine::point(std::string_view name) {
  base::fault_time.epoch.store(seat_.epoch.value(), std::memory_order_relaxed);
  base::fault_time.step.store(committed_.step.value() + 1, std::memory_order_relaxed);
  FAULT_POINT(name);
}

base::Task<base::Result<std::string>> FakeEngine::open(protocol::JobText) {
  co_await pause(job_.prepare_mean);
  co_return std::string("simulated device");
}

void FakeEngine::abort(const base::Status&) {
  ++turn_;
  loading_ = false;
  running_ = false;
  plane_.leave(*this);
  changed_.notify_all();
}

base::Task<recovery::StateReport> FakeEngine::fence(base::Epoch epoch) {
  abort(base::aborted("fenced"));
  seat_ = {.epoch = epoch};
  point("epoch.fence");
  co_await pause(job_.leave_mean);
  co_return state();
}

recovery::StateReport FakeEngine::state() const {
  recovery::StateReport report;
  report.has_state = has_state_ ? 1 : 0;
  report.committed = committed_;
  report.vote = vote_;
  report.pending = pending_;
  for (const auto& [tensor, digest] : tensors_) report.tensors.push_back({tensor, digest});
  return report;
}

base::Task<std::vector<recovery::StateOffer>> FakeEngine::offers() { co_return memory_.offers(); }

base::Task<FakeEngine::Restored> FakeEngine::restore(recovery::CommittedState target,
                                                     std::vector<recovery::TensorDigest> tensors) {
  const uint64_t turn = turn_;
  Restored restored;
  if (!(committed_ == target)) tensors_.clear();
  committed_ = target;
  vote_ = pending_ = {};
  std::erase_if(reports_, [&target](const auto& r) { return r.step > target.step; });
  for (const recovery::TensorDigest& wanted : tensors) {
    point("epoch.restore");
    co_await pause(job_.move_mean);
    if (turn != turn_) break;
    if (memory_.is_spoiled(target.step)) {
      memory_.drop(target.step, wanted.tensor);
      restored.bad_sources.push_back("memory: a bit has flipped");
      continue;
    }
    tensors_[wanted.tensor] = wanted.digest;
  }
  has_state_ = !tensors_.empty();
  restored.state = state();
  co_return restored;
}

base::Task<void> FakeEngine::take_snapshot(uint64_t turn) {
  if (!job_.snapshots) co_return;
  memory_.begin_save(worker_, committed_.step);
  point("snapshot.begin");
  co_await pause(job_.snapshot_mean);
  if (turn != turn_) co_return;
  recovery::StateOffer snapshot{
      .tier = recovery::StateTier::kMemory, .committed = committed_, .tensors = {}};
  for (const auto& [tensor, digest] : tensors_) snapshot.tensors.push_back({tensor, digest});
  memory_.end_save(worker_, std::move(snapshot));
  point("snapshot.end");
}

base::Result<recovery::VoteValue> FakeEngine::vote() const {
  if (vote_.epoch.value() == 0) return base::not_found("no vote made this state");
  recovery::VoteValue value;
  value.step = committed_.step;
  value.id = vote_;
  value.words = {committed_.step.value()};
  return value;
}

base::Task<base::Status> FakeEngine::apply_vote(recovery::VoteValue vote) {
  co_await pause(job_.leave_mean);
  if (!(vote.id == pending_) || vote.step != committed_.step.next())
    co_return base::failed_precondition("that vote is not pending");
  commit(vote.id);
  co_return base::Status::ok();
}

void FakeEngine::commit(recovery::VoteId vote) {
  const uint64_t step = committed_.step.value() + 1;
  protocol::StepReport report;
  report.step = base::Step(step);
  report.loss = 1.0 / static_cast<double>(step);
  report.digest_before = job_.state_digest_after(step - 1);
  report.epoch = vote.epoch;
  report.first_sample = committed_.samples_consumed;
  report.sample_count = job_.samples_per_step;
  report.sample_sum = parallel::sample_marks(report.first_sample, report.sample_count);
  for (auto& [tensor, digest] : tensors_) digest = FakeJob::next_digest(digest, step);
  committed_.step = base::Step(step);
  committed_.samples_consumed += job_.samples_per_step;
  ++committed_.applied_steps;
  committed_.calibrated = 1;
  vote_ = vote;
  pending_ = {};
  std::erase_if(reports_, [step](const auto& r) { return r.step.value() >= step; });
  reports_.push_back(report);
  observer_.on_commit(*this, committed_.step, vote);
}

base::Task<base::Result<protocol::Prepared>> FakeEngine::prepare(recovery::EpochPlan plan,
                                                                 base::Rank rank) {
  const uint64_t turn = turn_;
  seat_ = {.epoch = plan.epoch, .rank = rank, .ranks = plan.layout.ranks()};
  part_ = {.resume = plan.resume,
           .source = plan.source,
           .needed = plan.layout.tensors(job_.model, rank)};
  std::copy_if(plan.moves.begin(), plan.moves.end(), std::back_inserter(part_.moves),
               [rank](const auto& move) { return move.from == rank || move.to == rank; });
  plan = {};
  passed_.clear();
  lost_ = base::Status::ok();
  wants_hold_ = false;
  point("epoch.prepare");
  co_await pause(job_.prepare_mean);
  if (turn != turn_) co_return interrupted();
  plane_.sit(*this, seat_);
  protocol::Prepared prepared;
  prepared.address.resize(4);
  co_return prepared;
}

base::Task<base::Status> FakeEngine::pass(BarrierKey key, uint64_t turn) {
  if (turn != turn_) co_return interrupted();
  plane_.arrive(*this, key, wants_hold_);
  while (turn == turn_ && lost_.is_ok() && !passed_.contains(key)) co_await changed_.wait();
  if (turn != turn_) co_return interrupted();
  // What has arrived counts, also when a peer is lost after it.
  co_return passed_.contains(key) ? base::Status::ok() : lost_;
}

base::Task<base::Status> FakeEngine::fetch(const parallel::TensorMove& move, uint64_t turn) {
  co_await pause(job_.move_mean);
  if (turn != turn_) co_return interrupted();
  FakeEngine* source = plane_.peer(*this, seat_.epoch, move.from);
  if (source == nullptr) co_return base::unavailable("the source of a tensor is lost");
  const auto found = source->tensors_.find(move.tensor);
  if (found == source->tensors_.end() || !(source->committed_ == part_.resume))
    co_return base::data_loss("the source does not hold what the plan says");
  if (!(committed_ == part_.resume)) {  // older state is of no use beside it
    tensors_.clear();
    committed_ = part_.resume;
  }
  has_state_ = true;
  vote_ = {};
  pending_ = {};
  tensors_[move.tensor] = found->second;
  co_return base::Status::ok();
}

base::Task<base::Result<protocol::Loaded>> FakeEngine::load(
    std::vector<protocol::RankAddress> addresses) {
  addresses = {};
  loading_ = true;
  const uint64_t turn = turn_;
  const base::Status connected = co_await pass({BarrierKind::kConnect, 0}, turn);
  if (!connected.is_ok()) co_return connected;
  point("epoch.transfer");
  const Part part = part_;
  if (part.source == recovery::StateSource::kSeed) {
    tensors_.clear();
    for (const base::TensorId t : part.needed) tensors_[t] = job_.seed_digest(t);
    committed_ = {};
    has_state_ = true;
    vote_ = pending_ = {};
  }
  for (const parallel::TensorMove& move : part.moves) {
    if (move.from == seat_.rank) point("epoch.serve");
    if (turn != turn_) co_return interrupted();
    if (move.to != seat_.rank) continue;
    const base::Status fetched = co_await fetch(move, turn);
    if (!fetched.is_ok()) co_return fetched;
  }
  // Nobody lets go of what others may still have to fetch.
  const base::Status all_moved = co_await pass({BarrierKind::kConnect, 1}, turn);
  if (!all_moved.is_ok()) co_return all_moved;
  std::map<base::TensorId, uint64_t> kept;
  for (const base::TensorId t : part.needed) {
    const auto found = tensors_.find(t);
    if (found == tensors_.end()) co_return base::data_loss("a tensor of the stage is missing");
    kept.insert(*found);
  }
  tensors_ = std::move(kept);
  point("epoch.gate");
  protocol::Loaded loaded;
  loaded.committed = committed_;
  for (const auto& [tensor, digest] : tensors_) loaded.tensors.push_back({tensor, digest});
  co_return loaded;
}

base::Status FakeEngine::go() {
  if (running_) return base::Status::ok();
  loading_ = false;
  running_ = true;
  pending_ = {};
  observer_.on_go(*this);
  point("epoch.go");
  return base::spawn(host_.executor(), gate_, run_steps(turn_));
}

void FakeEngine::stop(const base::Status& why) {
  running_ = false;
  plane_.leave(*this);
  listener_->on_stopped(why, committed_.step);
}

base::Task<void> FakeEngine::run_steps(uint64_t turn) {
  co_await take_snapshot(turn);  // the layout is new
  while (committed_.step.value() < job_.steps) {
    const uint64_t step = committed_.step.value() + 1;
    pending_ = {};
    point("step.begin");
    co_await pause(job_.compute_mean);
    if (turn != turn_) co_return;
    point("step.reduce");
    const base::Status reduced = co_await pass({BarrierKind::kReduce, step}, turn);
    if (turn != turn_) co_return;
    if (!reduced.is_ok()) co_return stop(reduced);
    pending_ = {.epoch = seat_.epoch, .attempt = 1};
    point("step.vote");
    const base::Status voted = co_await pass({BarrierKind::kVote, step}, turn);
    if (turn != turn_) co_return;
    if (!voted.is_ok()) co_return stop(voted);
    point("step.voted");
    const bool held = passed_.at({BarrierKind::kVote, step});
    commit(pending_);
    const protocol::StepReport report = reports_.back();
    point("step.commit");
    passed_.erase({BarrierKind::kReduce, step});
    listener_->on_step(report);
    co_await take_snapshot(turn);
    if (turn != turn_) co_return;
    if (held) co_return stop(base::Status::ok());
  }
  const base::Status ended = co_await pass({BarrierKind::kEnd, committed_.step.value()}, turn);
  if (turn != turn_) co_return;
  if (!ended.is_ok()) co_return stop(ended);
  protocol::Finished finished;
  finished.step = committed_.step;
  finished.state_digest = finished.params_digest = job_.state_digest_after(committed_.step.value());
  listener_->on_finished(finished);
}

void FakeEngine::passed(base::Epoch epoch, const BarrierKey& key, bool wants_hold) {
  if (epoch != seat_.epoch) return;
  passed_[key] = wants_hold;
  changed_.notify_all();
  host_.mark_ready();
}

void FakeEngine::peer_lost(base::Epoch epoch, base::Rank rank) {
  if (epoch != seat_.epoch || !lost_.is_ok()) return;
  lost_ = base::unavailable("rank " + std::to_string(rank.value()) + " is lost");
  changed_.notify_all();
  host_.mark_ready();
}

std::vector<protocol::StepReport> FakeEngine::reports(base::Step after) const {
  std::vector<protocol::StepReport> result;
  for (const protocol::StepReport& report : reports_) {
    if (report.step > after) result.push_back(report);
  }
  return result;
}

base::Task<void> FakeEngine::close() {
  abort(base::cancelled("closed"));
  co_await gate_.close();
}

}  // namespace perdure::chaos::cluster
