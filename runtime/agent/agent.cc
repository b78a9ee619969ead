#include "runtime/agent/agent.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/sleep.h"
#include "runtime/rpc/handshake.h"

namespace perdure::runtime::agent {
namespace {

using base::Nanos;
using base::Status;
using base::StatusCode;
using base::Task;
using protocol::MessageType;

constexpr Nanos kConnectTimeout = std::chrono::seconds(2);
constexpr Nanos kWelcomeTimeout = std::chrono::seconds(5);
constexpr Nanos kSendTimeout = std::chrono::seconds(30);
constexpr Nanos kBackOffFirst = std::chrono::milliseconds(100);
constexpr Nanos kBackOffMax = std::chrono::seconds(1);
constexpr size_t kBeatsMax = 64;
// A connection without acks for so many leases is made anew: its host may be gone without a word.
constexpr int kSilentLeases = 5;

Status to_status(const protocol::Dismiss& dismiss) {
  if (dismiss.code == 0) return Status::ok();
  const bool known = dismiss.code <= static_cast<uint32_t>(StatusCode::kUnimplemented);
  return Status(known ? static_cast<StatusCode>(dismiss.code) : StatusCode::kInternal, dismiss.why);
}

}  // namespace

struct Agent::Link {
  explicit Link(std::unique_ptr<base::Channel> raw) : channel(std::move(raw)) {}
  void close() {
    is_closed = true;
    channel.close();
  }

  rpc::MessageChannel channel;
  bool is_closed = false;
  bool is_sending = false;  // its sender runs
  bool beat_due = false;
};

Agent::Agent(const AgentOptions& options, const AgentServices& services, FindCoordinator find)
    : options_(options),
      services_(services),
      find_(std::move(find)),
      random_(options.seed, options.node.value()),
      workers_({.secret = options.secret,
                .listen = options.listen,
                .restarts = {.restarts_max = options.worker_restarts},
                .start_timeout = options.worker_start_timeout},
               services, *this, random_) {}

Agent::~Agent() = default;

Task<Status> Agent::run() {
  born_ = static_cast<uint64_t>(services_.clock.unix_ms()) << 16 | random_.uniform_int(1 << 16);
  CO_RETURN_IF_ERROR(workers_.listen());
  CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, connect_loop()));
  CO_RETURN_IF_ERROR(base::spawn(services_.executor, gate_, tick_loop()));
  while (!outcome_.has_value()) CO_RETURN_IF_ERROR(co_await changed_.wait());
  if (dismiss_.has_value()) co_await workers_.leave(*dismiss_, options_.leave_timeout);
  co_await workers_.stop();
  stop_.request_stop();
  if (link_ != nullptr) link_->close();
  wake_.notify_all();
  co_await gate_.close();
  co_return *outcome_;
}

void Agent::stop(Status why) {
  if (outcome_.has_value()) return;  // its workers are leaving
  workers_.kill_all();
  finish(std::move(why));
}

void Agent::finish(Status outcome) {
  if (!outcome_.has_value()) outcome_ = std::move(outcome);
  changed_.notify_all();
}

// Half of it is drawn, so that agents that lost the same coordinator do not come back in step.
Nanos Agent::back_off(uint32_t tries) {
  const Nanos whole = std::min(kBackOffFirst * (int64_t{1} << std::min(tries, 10u)), kBackOffMax);
  return whole / 2 + Nanos(static_cast<int64_t>(
                         random_.uniform_int(static_cast<uint64_t>(whole.count()) / 2 + 1)));
}

Task<void> Agent::connect_loop() {
  uint32_t tries = 0;
  while (!outcome_.has_value()) {
    const Nanos acked_before = acked_last_;
    const Status ended = co_await session();
    if (outcome_.has_value()) co_return;
    if (acked_last_ != acked_before) tries = 0;  // it was a session
    LOG_INFO("agent", "no coordinator", KV("node", options_.node), KV("why", ended));
    const Status slept =
        co_await base::sleep_for(services_.clock, back_off(tries++), stop_.token());
    if (!slept.is_ok()) co_return;
  }
}

// From the connection to its loss.
Task<Status> Agent::session() {
  CO_ASSIGN_OR_RETURN(const base::Address address, find_());
  const Nanos deadline = services_.clock.now() + kConnectTimeout;
  auto channel = co_await services_.network.connect(address, deadline);
  CO_RETURN_IF_ERROR(channel.status());
  auto link = std::make_shared<Link>(std::move(channel).value());
  link_ = link;
  if (outcome_.has_value()) link->close();
  Status status = co_await join(link);
  if (status.is_ok() && !outcome_.has_value()) {
    link->is_sending = base::spawn(services_.executor, gate_, send_loop(link)).is_ok();
    status = co_await follow(link);
  }
  link->close();
  wake_.notify_all();
  // The sender first puts back what it could not send.
  while (link->is_sending) CO_RETURN_IF_ERROR(co_await link_quiet_.wait());
  link_ = nullptr;
  co_return status;
}

Task<Status> Agent::join(std::shared_ptr<Link> link) {
  const rpc::PeerIdentity self{
      .role = rpc::PeerRole::kAgent, .number = options_.node.value(), .incarnation = incarnation_};
  CO_RETURN_IF_ERROR(co_await rpc::offer_handshake(link->channel, options_.secret, self, random_,
                                                   services_.clock));
  outbox_.drop_known(workers_.up());
  const rpc::Frame hello = protocol::to_frame(make_join(), stamp());
  const Nanos asked_at = services_.clock.now();
  CO_RETURN_IF_ERROR(co_await link->channel.send(hello, asked_at + kWelcomeTimeout));
  auto answer = co_await link->channel.receive(asked_at + kWelcomeTimeout);
  CO_RETURN_IF_ERROR(answer.status());
  if (answer->type == static_cast<uint16_t>(MessageType::kDismiss)) co_return handle(*answer);
  CO_ASSIGN_OR_RETURN(const protocol::NodeWelcome welcome,
                      protocol::from_frame<protocol::NodeWelcome>(*answer));
  if (outcome_.has_value()) co_return Status::ok();
  epoch_ = std::max(epoch_, answer->stamp.epoch);
  on_welcome(welcome, asked_at);
  co_return Status::ok();
}

protocol::NodeJoin Agent::make_join() const {
  return {.node = options_.node,
          .pid = options_.pid,
          .born = born_,
          .job_id = job_id_,
          .workers = workers_.up()};
}

rpc::Stamp Agent::stamp() const { return {.epoch = epoch_, .incarnation = incarnation_}; }

void Agent::on_welcome(const protocol::NodeWelcome& welcome, Nanos asked_at) {
  incarnation_ = welcome.incarnation;
  job_id_ = welcome.job_id;
  beat_time_ = std::chrono::milliseconds(std::clamp<uint32_t>(welcome.beat_ms, 1, 60'000));
  const Nanos lease = std::chrono::milliseconds(std::max<uint32_t>(welcome.lease_ms, 1));
  if (!lease_.has_value() || lease != lease_time_) {
    lease_.emplace(membership::LeaseKeeperOptions{.lease = lease, .end_after = options_.end_after},
                   asked_at);
  }
  lease_time_ = lease;
  lease_->acked(asked_at);
  acked_last_ = services_.clock.now();
  beats_.clear();
  is_fenced_ = false;
  LOG_INFO("agent", "welcome", KV("node", options_.node), KV("incarnation", incarnation_),
           KV("workers", welcome.workers.size()));
  workers_.apply(welcome);
  changed_.notify_all();
}

Task<Status> Agent::follow(std::shared_ptr<Link> link) {
  while (true) {
    auto frame = co_await link->channel.receive(base::kNoDeadline);
    CO_RETURN_IF_ERROR(frame.status());
    if (outcome_.has_value()) co_return Status::ok();
    CO_RETURN_IF_ERROR(handle(*frame));
  }
}

Status Agent::handle(const rpc::Frame& frame) {
  epoch_ = std::max(epoch_, frame.stamp.epoch);
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kBeatAck: {
      ASSIGN_OR_RETURN(const auto ack, protocol::from_frame<protocol::BeatAck>(frame));
      on_ack(ack);
      return Status::ok();
    }
    case MessageType::kToWorkers: {
      ASSIGN_OR_RETURN(const auto message, protocol::from_frame<protocol::ToWorkers>(frame));
      workers_.send(message, frame.stamp);
      return Status::ok();
    }
    case MessageType::kEndWorker: {
      ASSIGN_OR_RETURN(const auto message, protocol::from_frame<protocol::EndWorker>(frame));
      workers_.end(message.target, message.why);
      return Status::ok();
    }
    case MessageType::kDismiss: {
      ASSIGN_OR_RETURN(const auto dismiss, protocol::from_frame<protocol::Dismiss>(frame));
      on_dismiss(dismiss);
      return Status::ok();
    }
    default:
      return base::data_loss("a message of type " + std::to_string(frame.type) +
                             ", which is not for an agent");
  }
}

void Agent::on_ack(const protocol::BeatAck& ack) {
  const auto sent = beats_.find(ack.sequence);
  if (sent == beats_.end()) return;
  if (lease_.has_value()) lease_->acked(sent->second);
  acked_last_ = services_.clock.now();
  beats_.erase(beats_.begin(), std::next(sent));
}

void Agent::on_dismiss(const protocol::Dismiss& dismiss) {
  LOG_INFO("agent", "dismissed", KV("node", options_.node), KV("code", dismiss.code),
           KV("why", dismiss.why));
  // A node that has been replaced has no say: its workers hold up others.
  if (dismiss.code == static_cast<uint32_t>(StatusCode::kAborted)) {
    workers_.kill_all();
  } else if (!outcome_.has_value()) {
    dismiss_ = dismiss;
  }
  finish(to_status(dismiss));
}

rpc::Frame Agent::next_beat() {
  const uint64_t sequence = ++beat_last_;
  beats_[sequence] = services_.clock.now();
  if (beats_.size() > kBeatsMax) beats_.erase(beats_.begin());
  return protocol::to_frame(protocol::Beat{.sequence = sequence, .step = workers_.step()}, stamp());
}

Task<void> Agent::send_loop(std::shared_ptr<Link> link) {
  while (!link->is_closed) {
    const Nanos deadline = services_.clock.now() + kSendTimeout;
    Status sent;
    if (std::exchange(link->beat_due, false)) {
      const rpc::Frame beat = next_beat();
      sent = co_await link->channel.send(beat, deadline);
    } else if (!outbox_.empty()) {
      Outbox::Batch batch = outbox_.take();
      const rpc::Frame frame = to_frame(batch, stamp());
      sent = co_await link->channel.send(frame, deadline);
      if (!sent.is_ok()) outbox_.put_back(std::move(batch));
    } else {
      sent = co_await wake_.wait();
    }
    if (!sent.is_ok()) link->close();
  }
  link->is_sending = false;
  link_quiet_.notify_all();
}

Task<void> Agent::tick_loop() {
  while (!outcome_.has_value()) {
    tick();
    const Status slept = co_await base::sleep_for(services_.clock, beat_time_, stop_.token());
    if (!slept.is_ok()) co_return;
  }
}

void Agent::tick() {
  workers_.tick();
  if (!lease_.has_value()) return;
  const Nanos now = services_.clock.now();
  if (link_ != nullptr && link_->is_sending) {
    link_->beat_due = true;
    wake_.notify_all();
    if (now - acked_last_ > kSilentLeases * lease_time_) {
      LOG_WARNING("agent", "no ack: connecting again", KV("node", options_.node));
      link_->close();
    }
  }
  watch_lease(now);
}

void Agent::watch_lease(Nanos now) {
  switch (lease_->verdict(now)) {
    case membership::LeaseVerdict::kHold:
      is_fenced_ = false;
      break;
    case membership::LeaseVerdict::kFence:
      if (std::exchange(is_fenced_, true)) break;
      LOG_WARNING("agent", "lease over: workers leave their epoch", KV("node", options_.node),
                  KV("why", lease_->explain(now)));
      workers_.fence(lease_->explain(now));
      break;
    case membership::LeaseVerdict::kEnd:
      LOG_ERROR("agent", "lease over for long: node ends", KV("node", options_.node),
                KV("why", lease_->explain(now)));
      workers_.kill_all();
      finish(base::aborted("node " + std::to_string(options_.node.value()) + ": " +
                           lease_->explain(now)));
      break;
  }
}

void Agent::on_worker_up(const protocol::WorkerInfo& info) {
  outbox_.push_control(protocol::to_frame(protocol::WorkerUp{.info = info}, {}));
  wake_.notify_all();
}

void Agent::on_worker_down(const protocol::WorkerDown& down) {
  outbox_.push_control(protocol::to_frame(down, {}));
  wake_.notify_all();
}

Status Agent::on_worker_message(protocol::WorkerMessage message) {
  const Status pushed = outbox_.push(std::move(message));
  wake_.notify_all();
  return pushed;
}

void Agent::on_worker_step(base::Step step) {
  if (lease_.has_value()) lease_->committed(step, services_.clock.now());
}

}  // namespace perdure::runtime::agent
