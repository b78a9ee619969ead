#include "runtime/worker/worker.h"

#include "base/log.h"
#include "base/sleep.h"
#include "recovery/epoch_plan.h"
#include "runtime/protocol/node_messages.h"

namespace perdure::runtime::worker {
namespace {

using protocol::MessageType;

constexpr base::Nanos kConnectTimeout = std::chrono::seconds(10);
constexpr base::Nanos kMessageTimeout = std::chrono::seconds(10);
constexpr int kAgentLeases = 4;
constexpr size_t kOrdersMax = 1024;
constexpr size_t kOutgoingMax = 1 << 16;

MessageType type_of(const rpc::Frame& frame) { return static_cast<MessageType>(frame.type); }

}  // namespace

Worker::Worker(const WorkerOptions& options, const WorkerServices& services)
    : options_(options),
      services_(services),
      nonces_(options.nonce_seed),
      orders_(kOrdersMax, services.clock),
      outgoing_(kOutgoingMax, services.clock) {
  services.engine.listen(*this);
}

template <typename Message>
void Worker::tell(const Message& message) {
  const base::Status queued = outgoing_.try_push(protocol::to_frame(message, stamp()));
  if (!queued.is_ok() && queued.code() != base::StatusCode::kCancelled)
    LOG_WARNING("worker", "message dropped", KV("why", queued.to_string()));
}

void Worker::tell_stopped(const base::Status& why) {
  const protocol::Stopped stopped{
      .step = committed_, .code = static_cast<uint32_t>(why.code()), .text = why.message()};
  tell(stopped);
}

void Worker::leave(base::Status why) {
  if (!end_.has_value()) end_ = std::move(why);
  left_.notify_all();
}

base::Task<base::Status> Worker::run() {
  base::Status status = co_await join();
  if (status.is_ok()) {
    CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, receive_loop()));
    CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, order_loop()));
    CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, send_loop()));
    CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, beat_loop()));
    while (!end_.has_value()) co_await left_.wait();
    status = *end_;
  }
  services_.engine.abort(base::cancelled("the worker leaves"));
  orders_.close();
  outgoing_.close();
  if (channel_ != nullptr) channel_->close();
  co_await gate_.close();
  co_await services_.engine.close();
  co_return status;
}

base::Task<base::Status> Worker::join() {
  CO_ASSIGN_OR_RETURN(auto channel, co_await services_.network.connect(
                                        options_.agent, services_.clock.now() + kConnectTimeout));
  channel_ = std::make_unique<rpc::MessageChannel>(std::move(channel));
  const rpc::PeerIdentity self{.role = rpc::PeerRole::kWorker,
                               .number = options_.worker.value(),
                               .incarnation = options_.incarnation};
  CO_RETURN_IF_ERROR(
      co_await rpc::offer_handshake(*channel_, options_.secret, self, nonces_, services_.clock));
  const protocol::WorkerUp up{.info = {.worker = options_.worker,
                                       .incarnation = options_.incarnation,
                                       .pid = options_.pid}};
  CO_RETURN_IF_ERROR(co_await channel_->send(protocol::to_frame(up, stamp()),
                                             services_.clock.now() + kMessageTimeout));
  CO_ASSIGN_OR_RETURN(const rpc::Frame frame,
                      co_await channel_->receive(services_.clock.now() + kMessageTimeout));
  CO_ASSIGN_OR_RETURN(const protocol::WorkerJob job,
                      protocol::from_frame<protocol::WorkerJob>(frame));
  // An agent that dies takes its workers with it; this is for one that is stopped.
  const membership::LeaseKeeperOptions lease{.lease = kAgentLeases *
                                                      std::chrono::milliseconds(job.lease_ms)};
  lease_.emplace(lease, services_.clock.now());
  beat_every_ = std::chrono::milliseconds(job.beat_ms);
  CO_ASSIGN_OR_RETURN(device_, co_await services_.engine.open(job.job));
  co_return base::Status::ok();
}

base::Task<void> Worker::receive_loop() {
  while (true) {
    base::Result<rpc::Frame> frame = co_await channel_->receive(base::kNoDeadline);
    if (!frame.is_ok()) {
      leave(frame.status().annotate("the agent is lost"));
      co_return;
    }
    take(std::move(frame).value());
  }
}

void Worker::take(rpc::Frame frame) {
  switch (type_of(frame)) {
    case MessageType::kBeatAck: {
      const auto ack = protocol::from_frame<protocol::BeatAck>(frame);
      // The sequence is the time at which the beat was sent.
      if (ack.is_ok()) lease_->acked(base::Nanos(static_cast<int64_t>(ack->sequence)));
      return;
    }
    case MessageType::kDismiss: {
      const auto dismiss = protocol::from_frame<protocol::Dismiss>(frame);
      const bool done = dismiss.is_ok() && dismiss->code == 0;
      leave(done ? base::Status::ok() : base::aborted("dismissed"));
      return;
    }
    default:
      break;
  }
  if (frame.stamp.epoch < epoch_) {
    LOG_INFO("worker", "stale order refused", KV("type", frame.type),
             KV("epoch", frame.stamp.epoch), KV("newest", epoch_));
    return;
  }
  if (type_of(frame) == MessageType::kFence) {
    epoch_ = frame.stamp.epoch;
    rank_.reset();
    finished_.reset();
    services_.engine.abort(base::aborted("epoch " + std::to_string(epoch_.value()) + " begins"));
  } else if (frame.stamp.epoch != epoch_) {
    LOG_WARNING("worker", "order of an epoch without a fence", KV("type", frame.type));
    return;
  }
  const base::Nanos deadline =
      frame.stamp.budget_ms == 0
          ? base::kNoDeadline
          : services_.clock.now() + std::chrono::milliseconds(frame.stamp.budget_ms);
  const base::Status queued = orders_.try_push(Order{std::move(frame), deadline});
  if (!queued.is_ok()) leave(queued.annotate("too many orders"));
}

base::Task<void> Worker::order_loop() {
  while (true) {
    base::Result<Order> order = co_await orders_.pop(base::kNoDeadline);
    if (!order.is_ok()) co_return;
    if (order->frame.stamp.epoch != epoch_) continue;
    if (services_.clock.now() > order->deadline) {
      LOG_WARNING("worker", "order that is too late", KV("type", order->frame.type));
      continue;
    }
    co_await carry_out(std::move(order->frame));
  }
}

base::Task<void> Worker::carry_out(rpc::Frame order) {
  switch (type_of(order)) {
    case MessageType::kFence:
      co_await fence(order);
      break;
    case MessageType::kAskVote:
      give_vote();
      break;
    case MessageType::kApplyVote:
      co_await apply_vote(order);
      break;
    case MessageType::kRestore:
      co_await restore(order);
      break;
    case MessageType::kPrepare:
      co_await prepare(order);
      break;
    case MessageType::kLoad:
      co_await load(order);
      break;
    case MessageType::kGo:
      go(order);
      break;
    case MessageType::kHold:
      services_.engine.hold();
      break;
    case MessageType::kAskReports: {
      const auto ask = protocol::from_frame<protocol::AskReports>(order);
      if (ask.is_ok()) tell_steps_after(ask->reported);
      if (finished_.has_value()) tell(*finished_);
      break;
    }
    default:
      LOG_WARNING("worker", "unknown order", KV("type", order.type));
  }
}

base::Task<void> Worker::fence(const rpc::Frame& order) {
  const base::Epoch epoch = epoch_;
  const auto message = protocol::from_frame<protocol::Fence>(order);
  if (message.is_ok()) reported_ = message->reported;
  protocol::StateTold told;
  told.state = co_await services_.engine.fence(epoch);
  if (message.is_ok() && message->with_offers != 0) offers_asked_in_ = epoch;
  if (epoch == epoch_) co_await tell_state(std::move(told));
}

// What is offered now is told with it: what proved bad is not there any more.
base::Task<void> Worker::restore(const rpc::Frame& order) {
  const base::Epoch epoch = epoch_;
  auto message = protocol::from_frame<protocol::Restore>(order);
  if (!message.is_ok()) {
    tell_stopped(message.status());
    co_return;
  }
  auto restored = co_await services_.engine.restore(message->target, std::move(message->tensors));
  if (epoch != epoch_) co_return;
  for (const std::string& bad : restored.bad_sources)
    LOG_WARNING("worker", "state could not be brought back", KV("why", bad));
  protocol::StateTold told;
  told.state = std::move(restored.state);
  told.bad_sources = std::move(restored.bad_sources);
  co_await tell_state(std::move(told));
}

base::Task<void> Worker::tell_state(protocol::StateTold told) {
  const base::Epoch epoch = epoch_;
  if (offers_asked_in_ == epoch) told.state.offers = co_await services_.engine.offers();
  if (epoch != epoch_) co_return;
  committed_ = told.state.committed.step;
  if (!left_at_.has_value()) left_at_ = services_.clock.now();
  told.left_ns = static_cast<uint64_t>(left_at_->count());
  told.reports = services_.engine.reports(reported_);
  if (told.reports.size() > protocol::kReportsTold)
    told.reports.erase(told.reports.begin(), told.reports.end() - protocol::kReportsTold);
  tell(told);
}

void Worker::give_vote() {
  const base::Result<recovery::VoteValue> vote = services_.engine.vote();
  if (!vote.is_ok()) {
    tell_stopped(vote.status());
    return;
  }
  const protocol::VoteTold told{.vote = *vote};
  tell(told);
}

base::Task<void> Worker::apply_vote(const rpc::Frame& order) {
  const base::Epoch epoch = epoch_;
  const auto apply = protocol::from_frame<protocol::ApplyVote>(order);
  base::Status status = apply.status();
  if (status.is_ok()) status = co_await services_.engine.apply_vote(apply->vote);
  if (!status.is_ok()) LOG_WARNING("worker", "vote not applied", KV("why", status.to_string()));
  if (epoch != epoch_) co_return;
  protocol::StateTold told;
  told.state = services_.engine.state();
  if (!status.is_ok()) told.state.pending = {};  // it cannot be had: this is the answer
  co_await tell_state(std::move(told));
}

base::Task<void> Worker::prepare(const rpc::Frame& order) {
  const base::Epoch epoch = epoch_;
  auto message = protocol::from_frame<protocol::Prepare>(order);
  if (!message.is_ok()) {
    tell_stopped(message.status());
    co_return;
  }
  std::optional<base::Rank> rank;
  for (const protocol::RankedWorker& entry : message->ranks) {
    if (entry.worker == options_.worker && entry.incarnation == options_.incarnation)
      rank = entry.rank;
  }
  if (!rank.has_value() || message->plan.epoch != epoch) {
    tell_stopped(base::aborted("the plan is not for this worker"));
    co_return;
  }
  auto prepared = co_await services_.engine.prepare(std::move(message->plan), *rank);
  if (epoch != epoch_) co_return;
  if (!prepared.is_ok()) {
    tell_stopped(prepared.status());
    co_return;
  }
  rank_ = rank;
  prepared->device = device_;
  tell(*prepared);
}

base::Task<void> Worker::load(const rpc::Frame& order) {
  const base::Epoch epoch = epoch_;
  auto message = protocol::from_frame<protocol::Load>(order);
  if (!message.is_ok() || !rank_.has_value()) {
    tell_stopped(message.is_ok() ? base::aborted("load before prepare") : message.status());
    co_return;
  }
  const auto loaded = co_await services_.engine.load(std::move(message->addresses));
  if (epoch != epoch_) co_return;
  if (!loaded.is_ok()) {
    tell_stopped(loaded.status());
    co_return;
  }
  committed_ = loaded->committed.step;
  tell(*loaded);
}

void Worker::go(const rpc::Frame& order) {
  const auto message = protocol::from_frame<protocol::Go>(order);
  if (message.is_ok() && rank_ == base::Rank(0)) tell_steps_after(message->reported);
  left_at_.reset();
  const base::Status started = message.is_ok() ? services_.engine.go() : message.status();
  if (!started.is_ok()) tell_stopped(started);
}

void Worker::tell_steps_after(base::Step reported) {
  for (const protocol::StepReport& report : services_.engine.reports(reported)) tell(report);
}

void Worker::on_step(const protocol::StepReport& report) {
  committed_ = report.step;
  lease_->committed(report.step, services_.clock.now());
  if (rank_ == base::Rank(0)) tell(report);
}

void Worker::on_evaluation(const protocol::EvaluationReport& report) {
  if (rank_ == base::Rank(0)) tell(report);
}

void Worker::on_stopped(base::Status why, base::Step committed) {
  committed_ = committed;
  left_at_ = services_.clock.now();
  tell_stopped(why);
}

void Worker::on_finished(const protocol::Finished& finished) {
  finished_ = finished;
  tell(finished);
}

base::Task<void> Worker::send_loop() {
  while (true) {
    base::Result<rpc::Frame> next = co_await outgoing_.pop(base::kNoDeadline);
    if (!next.is_ok()) co_return;
    const base::Status sent =
        co_await channel_->send(std::move(next).value(), services_.clock.now() + kMessageTimeout);
    if (!sent.is_ok()) {
      leave(sent.annotate("the agent is lost"));
      co_return;
    }
  }
}

// The agent kills a worker that is silent; a worker whose agent is silent leaves its epoch.
base::Task<void> Worker::beat_loop() {
  bool fenced = false;
  while (!end_.has_value()) {
    const base::Nanos now = services_.clock.now();
    const protocol::Beat beat{.sequence = static_cast<uint64_t>(now.count()), .step = committed_};
    tell(beat);
    const membership::LeaseVerdict verdict = lease_->verdict(now);
    if (verdict == membership::LeaseVerdict::kEnd) {
      leave(base::unavailable("orphaned: " + lease_->explain(now)));
    } else if (verdict == membership::LeaseVerdict::kFence && !fenced) {
      LOG_WARNING("worker", "leaves its epoch", KV("why", lease_->explain(now)));
      const base::Status why = base::aborted("the agent is silent");
      services_.engine.abort(why);
      tell_stopped(why);
    }
    fenced = verdict != membership::LeaseVerdict::kHold;
    const base::Status woken = co_await left_.wait(services_.clock, now + beat_every_);
    if (woken.is_ok()) continue;
  }
}

}  // namespace perdure::runtime::worker
