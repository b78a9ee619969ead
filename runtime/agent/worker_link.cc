// The connections of workers: who is let in, what they say.

#include "runtime/agent/worker_link.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/sleep.h"
#include "runtime/agent/worker_activity.h"
#include "runtime/rpc/handshake.h"

namespace perdure::runtime::agent {
namespace {

using base::Nanos;
using base::Status;
using base::Task;
using protocol::MessageType;

// Room for the other fields of FromWorkers.
constexpr uint32_t kWorkerPayloadMax = rpc::kPayloadBytesMax - 65536;
constexpr Nanos kSendTimeout = std::chrono::seconds(30);
constexpr Nanos kFirstWordTimeout = std::chrono::seconds(10);

}  // namespace

Task<void> WorkerSet::accept_loop() {
  while (true) {
    auto channel = co_await socket_->accept(base::kNoDeadline);
    if (!channel.is_ok()) {
      if (channel.status().code() == base::StatusCode::kCancelled) co_return;
      LOG_WARNING("agent", "accept failed", KV("why", channel.status()));
      const Status slept =
          co_await base::sleep_for(services_.clock, std::chrono::milliseconds(100), stop_.token());
      if (!slept.is_ok()) co_return;
      continue;
    }
    spawn(serve(std::move(channel).value()));
  }
}

Task<void> WorkerSet::serve(std::unique_ptr<base::Channel> channel) {
  auto link = std::make_shared<Link>(std::move(channel), services_.clock);
  links_.insert(link.get());
  Status status = co_await admit(link);
  if (status.is_ok()) {
    spawn(send_loop(link));
    status = co_await follow(link);
  } else {
    LOG_WARNING("agent", "refused a connection", KV("why", status));
  }
  link->close();
  links_.erase(link.get());
  Slot* slot = find(link->worker, link->incarnation);
  if (slot != nullptr && slot->link == link) {
    slot->link = nullptr;
    slot->heard_last = services_.clock.now();
    if (status.code() == base::StatusCode::kDataLoss ||
        status.code() == base::StatusCode::kResourceExhausted) {
      give_up(*slot, status.message());
    }
  }
  changed_.notify_all();
}

Task<Status> WorkerSet::admit(std::shared_ptr<Link> link) {
  auto peer =
      co_await rpc::accept_handshake(link->channel, options_.secret, nonces_, services_.clock);
  CO_RETURN_IF_ERROR(peer.status());
  if (peer->role != rpc::PeerRole::kWorker) co_return base::invalid_argument("not a worker");
  const Nanos deadline = services_.clock.now() + kFirstWordTimeout;
  auto first = co_await link->channel.receive(deadline, kWorkerPayloadMax);
  CO_RETURN_IF_ERROR(first.status());
  CO_ASSIGN_OR_RETURN(const protocol::WorkerUp up,
                      protocol::from_frame<protocol::WorkerUp>(*first));
  const base::WorkerId worker(peer->number);
  Slot* slot = find(worker, peer->incarnation);
  if (slot == nullptr || !slot->is_running() || slot->told_down || slot->was_up || is_leaving_) {
    co_return base::aborted("worker " + std::to_string(worker.value()) + " of incarnation " +
                            std::to_string(peer->incarnation.value()) + " is not expected");
  }
  if (up.info.worker != worker || up.info.incarnation != peer->incarnation) {
    co_return base::invalid_argument("a worker that says it is another");
  }
  slot->info.device = up.info.device;
  slot->info.pid = up.info.pid;
  slot->was_up = true;
  slot->is_silent = false;
  slot->heard_last = services_.clock.now();
  link->worker = worker;
  link->incarnation = peer->incarnation;
  slot->link = link;
  put(*slot, protocol::to_frame(job_, {.incarnation = node_incarnation_}));
  listener_.on_worker_up(slot->info);
  co_return Status::ok();
}

Task<Status> WorkerSet::follow(std::shared_ptr<Link> link) {
  while (true) {
    auto frame = co_await link->channel.receive(base::kNoDeadline, kWorkerPayloadMax);
    CO_RETURN_IF_ERROR(frame.status());
    Slot* slot = find(link->worker, link->incarnation);
    if (slot == nullptr || slot->link != link) co_return base::aborted("the worker is down");
    CO_RETURN_IF_ERROR(take(*slot, std::move(frame).value()));
  }
}

Status WorkerSet::take(Slot& slot, rpc::Frame frame) {
  slot.heard_last = services_.clock.now();
  if (std::exchange(slot.is_silent, false)) listener_.on_worker_up(slot.info);
  const auto type = static_cast<MessageType>(frame.type);
  if (type == MessageType::kBeat) {
    ASSIGN_OR_RETURN(const protocol::Beat beat, protocol::from_frame<protocol::Beat>(frame));
    slot.step = std::max(slot.step, beat.step);
    put(slot, protocol::to_frame(protocol::BeatAck{.sequence = beat.sequence},
                                 {.incarnation = node_incarnation_}));
    listener_.on_worker_step(slot.step);
    return Status::ok();
  }
  if (!comes_from_workers(type)) {
    return base::data_loss("a message of type " + std::to_string(frame.type) +
                           ", which is not for a worker to say");
  }
  note_received(slot.info, type, frame.stamp.epoch);
  protocol::WorkerMessage message;
  message.worker = slot.info.worker;
  message.incarnation = slot.info.incarnation;
  message.epoch = frame.stamp.epoch;
  message.type = type;
  message.payload = std::move(frame.payload);
  return listener_.on_worker_message(std::move(message));
}

Task<void> WorkerSet::send_loop(std::shared_ptr<Link> link) {
  while (true) {
    auto frame = co_await link->outgoing.pop(base::kNoDeadline);
    if (!frame.is_ok()) co_return;
    const Nanos deadline = services_.clock.now() + kSendTimeout;
    const Status sent = co_await link->channel.send(std::move(frame).value(), deadline);
    if (!sent.is_ok()) {
      link->close();
      co_return;
    }
  }
}

}  // namespace perdure::runtime::agent
