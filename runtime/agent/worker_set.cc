#include "runtime/agent/worker_set.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/sleep.h"
#include "runtime/agent/worker_activity.h"
#include "runtime/agent/worker_link.h"
#include "runtime/protocol/epoch_messages.h"

namespace perdure::runtime::agent {
namespace {

using base::Nanos;
using base::Status;
using base::Task;
using protocol::MessageType;
using protocol::WorkerInfo;

// The last words of a process that has ended are still in its connection.
constexpr Nanos kSettleTimeout = std::chrono::milliseconds(100);
// A process that closed its connection is about to end; how it ends says more.
constexpr Nanos kUnlinkedMax = std::chrono::seconds(1);
constexpr Nanos kReapTimeout = std::chrono::seconds(5);
constexpr int kSilentLeasesMax = 10;

std::string seconds_text(Nanos time) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f s", base::to_seconds(time));
  return buffer;
}

}  // namespace

WorkerSet::WorkerSet(const WorkerSetOptions& options, const AgentServices& services,
                     WorkerSetListener& listener, base::SeededRandom& nonces)
    : options_(options), services_(services), listener_(listener), nonces_(nonces) {}

Status WorkerSet::listen() {
  ASSIGN_OR_RETURN(socket_, services_.network.listen(options_.listen));
  spawn(accept_loop());
  return Status::ok();
}

// After stop() there is nothing left to do for it.
void WorkerSet::spawn(Task<void> task) {
  const Status spawned = base::spawn(services_.executor, gate_, std::move(task));
  if (!spawned.is_ok()) LOG_DEBUG("agent", "task not started", KV("why", spawned));
}

void WorkerSet::apply(const protocol::NodeWelcome& welcome) {
  if (is_leaving_) return;
  node_incarnation_ = welcome.incarnation;
  job_ = {.lease_ms = welcome.lease_ms, .beat_ms = welcome.beat_ms, .job = welcome.job};
  for (auto& [worker, slot] : slots_) {
    slot.is_wanted =
        std::find(welcome.workers.begin(), welcome.workers.end(), worker) != welcome.workers.end();
    if (!slot.is_wanted && slot.is_running()) give_up(slot, "not wanted on this node any more");
  }
  for (const base::WorkerId worker : welcome.workers) slots_.try_emplace(worker, options_.restarts);
  for (const base::WorkerId worker : welcome.workers) {
    Slot& slot = slots_.at(worker);
    const bool used_up = slot.process != nullptr && !slot.restart_pending;
    if (!slot.is_running() && !slot.restart_pending && !used_up) start(worker, slot);
  }
}

void WorkerSet::start(base::WorkerId worker, Slot& slot) {
  CHECK(!slot.is_running()) << "worker " << worker;
  const base::Incarnation incarnation((node_incarnation_.value() << 16) | ++start_count_);
  slot.info = WorkerInfo{};
  slot.info.worker = worker;
  slot.info.incarnation = incarnation;
  slot.link = nullptr;
  slot.was_up = false;
  slot.told_down = false;
  slot.is_silent = false;
  slot.step = base::Step(0);
  slot.started_at = slot.heard_last = services_.clock.now();
  WorkerStart request{.worker = worker,
                      .incarnation = incarnation,
                      .agent = socket_->address(),
                      .node_workers = {}};
  for (const auto& [other, ignored] : slots_) request.node_workers.push_back(other);
  auto started = services_.starter.start(
      request, [this, worker, incarnation](std::string how) { on_exit(worker, incarnation, how); });
  if (started.is_ok()) {
    slot.process = std::move(started).value();
    return;
  }
  report_down(slot, started.status().message());
  schedule_restart(slot);
}

void WorkerSet::on_exit(base::WorkerId worker, base::Incarnation incarnation,
                        const std::string& how) {
  changed_.notify_all();
  Slot* slot = find(worker, incarnation);
  if (slot == nullptr) return;
  if (slot->is_up() && !slot->told_down) {
    spawn(settle_exit(worker, incarnation, how));
    return;
  }
  report_down(*slot, how);
  schedule_restart(*slot);
}

Task<void> WorkerSet::settle_exit(base::WorkerId worker, base::Incarnation incarnation,
                                  std::string how) {
  const Nanos deadline = services_.clock.now() + kSettleTimeout;
  while (true) {
    Slot* slot = find(worker, incarnation);
    if (slot == nullptr) co_return;
    if (!slot->is_up()) break;
    if (!(co_await changed_.wait(services_.clock, deadline)).is_ok()) break;
  }
  Slot* slot = find(worker, incarnation);
  if (slot == nullptr) co_return;
  report_down(*slot, how);
  schedule_restart(*slot);
}

void WorkerSet::report_down(Slot& slot, const std::string& how) {
  if (slot.link != nullptr) slot.link->close();
  slot.link = nullptr;
  if (!std::exchange(slot.told_down, true) && !slot.is_silent) tell_down(slot, how);
}

void WorkerSet::tell_down(Slot& slot, const std::string& how) {
  LOG_INFO("agent", "worker is down", KV("worker", slot.info.worker),
           KV("incarnation", slot.info.incarnation), KV("how", how));
  listener_.on_worker_down(
      {.worker = slot.info.worker, .incarnation = slot.info.incarnation, .how = how});
}

void WorkerSet::give_up(Slot& slot, const std::string& why) {
  report_down(slot, why);
  if (slot.process != nullptr) slot.process->kill();
}

void WorkerSet::schedule_restart(Slot& slot) {
  if (is_leaving_ || !slot.is_wanted || slot.restart_pending) return;
  const auto delay = slot.restarts.on_exit(services_.clock.now() - slot.started_at);
  if (!delay.has_value()) {
    LOG_WARNING("agent", "worker is not started again: its restarts are used up",
                KV("worker", slot.info.worker));
    return;
  }
  slot.restart_pending = true;
  spawn(restart_after(slot.info.worker, slot.info.incarnation, *delay));
}

Task<void> WorkerSet::restart_after(base::WorkerId worker, base::Incarnation incarnation,
                                    Nanos delay) {
  const Status slept = co_await base::sleep_for(services_.clock, delay, stop_.token());
  Slot* slot = find(worker, incarnation);
  if (slot == nullptr) co_return;
  slot->restart_pending = false;
  if (slept.is_ok() && !is_leaving_ && slot->is_wanted) start(worker, *slot);
}

void WorkerSet::revive() {
  if (is_leaving_) return;
  for (auto& [worker, slot] : slots_) {
    slot.restarts.forgive();
    // A restart that is on its way finds another incarnation and does nothing.
    if (slot.is_running() || !slot.is_wanted) continue;
    slot.restart_pending = false;
    start(worker, slot);
  }
}

std::string WorkerSet::why_silent(const Slot& slot, Nanos now) const {
  const Nanos lease = std::chrono::milliseconds(job_.lease_ms);
  const Nanos silence = now - slot.heard_last;
  if (slot.is_up()) return silence > lease ? "no beat for " + seconds_text(silence) : "";
  if (slot.was_up) return silence > kUnlinkedMax ? "left its agent, but did not end" : "";
  return silence > options_.start_timeout ? "not up after " + seconds_text(silence) : "";
}

void WorkerSet::tick() {
  const Nanos now = services_.clock.now();
  const Nanos lease = std::chrono::milliseconds(job_.lease_ms);
  // This process was stopped itself: what its workers said meanwhile has not been read.
  const Nanos gap = ticked_last_ < Nanos(0) ? Nanos(0) : now - ticked_last_;
  ticked_last_ = now;
  for (auto& [worker, slot] : slots_) {
    if (gap > lease / 2) slot.heard_last = std::min(now, slot.heard_last + gap);
    if (!slot.is_running() || slot.told_down) continue;
    const std::string why = why_silent(slot, now);
    if (why.empty()) continue;
    // A machine that is busy may silence a healthy process for a second: it is counted out at once,
    // and let in again with all it holds when it speaks. Only long silence ends it.
    if (slot.is_up() && now - slot.heard_last < kSilentLeasesMax * lease) {
      if (!std::exchange(slot.is_silent, true)) tell_down(slot, why);
    } else {
      give_up(slot, why);
    }
  }
}

std::vector<WorkerInfo> WorkerSet::up() const {
  std::vector<WorkerInfo> infos;
  for (const auto& [worker, slot] : slots_) {
    if (slot.is_up() && !slot.is_silent) infos.push_back(slot.info);
  }
  return infos;
}

base::Step WorkerSet::step() const {
  base::Step newest;
  for (const auto& [worker, slot] : slots_) newest = std::max(newest, slot.step);
  return newest;
}

WorkerSet::Slot* WorkerSet::find(base::WorkerId worker, base::Incarnation incarnation) {
  const auto at = slots_.find(worker);
  if (at == slots_.end() || at->second.info.incarnation != incarnation) return nullptr;
  return &at->second;
}

void WorkerSet::put(Slot& slot, rpc::Frame frame) {
  const Status queued = slot.link->outgoing.try_push(std::move(frame));
  if (!queued.is_ok()) give_up(slot, "does not read its messages: " + queued.message());
}

void WorkerSet::send(const protocol::ToWorkers& message, const rpc::Stamp& stamp) {
  if (!goes_to_workers(message.type)) {
    LOG_WARNING("agent", "a message that is not for workers",
                KV("type", static_cast<int>(message.type)));
    return;
  }
  for (const protocol::WorkerTarget& target : message.targets) {
    Slot* slot = find(target.worker, target.incarnation);
    if (slot == nullptr || !slot->is_up()) {
      LOG_DEBUG("agent", "message for a worker that is gone", KV("worker", target.worker),
                KV("incarnation", target.incarnation));
      continue;
    }
    note_sent(slot->info, message.type, stamp.epoch);
    put(*slot, {.type = static_cast<uint16_t>(message.type),
                .stamp = {.epoch = stamp.epoch,
                          .incarnation = node_incarnation_,
                          .budget_ms = stamp.budget_ms},
                .payload = message.payload});
  }
}

void WorkerSet::end(const protocol::WorkerTarget& target, const std::string& why) {
  Slot* slot = find(target.worker, target.incarnation);
  if (slot != nullptr && slot->is_running()) give_up(*slot, why);
}

void WorkerSet::fence(const std::string& why) {
  for (auto& [worker, slot] : slots_) {
    if (!slot.is_up()) continue;
    note_sent(slot.info, MessageType::kFence, slot.info.epoch);
    put(slot, protocol::to_frame(protocol::Fence{.why = why},
                                 {.epoch = slot.info.epoch, .incarnation = node_incarnation_}));
  }
}

bool WorkerSet::any_running() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const auto& entry) { return entry.second.is_running(); });
}

void WorkerSet::kill_all() {
  is_leaving_ = true;
  for (auto& [worker, slot] : slots_) {
    if (slot.is_running()) slot.process->kill();
  }
}

Task<void> WorkerSet::leave(protocol::Dismiss dismiss, Nanos timeout) {
  is_leaving_ = true;
  for (auto& [worker, slot] : slots_) {
    if (!slot.is_running()) continue;
    if (!slot.is_up()) {
      slot.process->kill();
      continue;
    }
    put(slot,
        protocol::to_frame(dismiss, {.epoch = slot.info.epoch, .incarnation = node_incarnation_}));
  }
  const Nanos deadline = services_.clock.now() + timeout;
  while (any_running()) {
    if ((co_await changed_.wait(services_.clock, deadline)).is_ok()) continue;
    LOG_WARNING("agent", "killing workers that do not leave");
    kill_all();
    break;
  }
}

Task<void> WorkerSet::stop() {
  kill_all();
  const Nanos deadline = services_.clock.now() + kReapTimeout;
  while (any_running()) {
    if (!(co_await changed_.wait(services_.clock, deadline)).is_ok()) break;
  }
  stop_.request_stop();
  if (socket_ != nullptr) socket_->close();
  for (Link* link : links_) link->close();
  co_await gate_.close();
}

}  // namespace perdure::runtime::agent
