// The life of a coordinator: its memory, its connections, its clock, its end.

#include "runtime/coordinator/coordinator.h"

#include <algorithm>

#include "base/fault_point.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/sleep.h"
#include "recovery/epoch_fields.h"
#include "runtime/coordinator/journal_records.h"

namespace perdure::runtime::coordinator {
namespace {

constexpr base::Nanos kMessageTimeout = std::chrono::seconds(10);
constexpr size_t kStrangersMax = 4096;  // connections that have not proved themselves
constexpr base::Nanos kProgressEvery = std::chrono::seconds(1);

uint64_t fingerprint(const protocol::JobText& job) { return base::hash64(rpc::to_bytes(job)); }

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options,
                         std::unique_ptr<base::Listener> listener, Journal& journal,
                         base::Clock& clock, const base::Executor& executor, JobObserver& observer)
    : options_(options),
      listener_(std::move(listener)),
      journal_(journal),
      clock_(clock),
      executor_(executor),
      observer_(observer),
      nonces_(options.nonce_seed),
      machine_(options.machine),
      table_(options.lease) {}

void Coordinator::end(base::Status status) {
  if (!end_.has_value()) end_ = std::move(status);
  changed_.notify_all();
}

void Coordinator::stop(base::Status why) { feed(recovery::StopAsked{std::move(why)}); }

base::Task<base::Status> Coordinator::run() {
  const base::Status recalled = recall();
  if (recalled.is_ok() && !end_.has_value()) {
    CO_RETURN_IF_ERROR(base::spawn(executor_, gate_, accept_loop()));
    CO_RETURN_IF_ERROR(base::spawn(executor_, gate_, tick_loop()));
    while (!end_.has_value()) co_await changed_.wait();
    co_await dismiss_all();
  } else if (recalled.is_ok()) {
    // The job had ended before this process began: agents that come back are told so.
    CO_RETURN_IF_ERROR(base::spawn(executor_, gate_, accept_loop()));
    const base::Status slept = co_await base::sleep_for(clock_, 2 * options_.lease.lease);
    CHECK(slept.is_ok());
  }
  listener_->close();
  for (rpc::MessageChannel* stranger : strangers_) stranger->close();
  for (const auto& session : sessions_) {
    session->outgoing.close();
    session->channel->close();
  }
  changed_.notify_all();
  co_await gate_.close();
  if (!recalled.is_ok()) co_return recalled;
  co_return *end_;
}

// Reads the journal; a new life begins with an entry in it.
base::Status Coordinator::recall() {
  ASSIGN_OR_RETURN(const std::vector<JournalRecord> records, journal_.read_all());
  recovery::MachineMemory memory;
  bool known = false;
  for (const JournalRecord& record : records) {
    switch (record.kind) {
      case RecordKind::kJob: {
        ASSIGN_OR_RETURN(const JobRecord job, rpc::from_bytes<JobRecord>(record.payload));
        known = true;
        if (job.fingerprint != fingerprint(options_.job))
          return base::invalid_argument("the journal belongs to another job (" + job.job_id + ")");
        break;
      }
      case RecordKind::kLife: {
        ASSIGN_OR_RETURN(life_, rpc::from_bytes<base::Incarnation>(record.payload));
        break;
      }
      case RecordKind::kNode: {
        ASSIGN_OR_RETURN(const NodeRecord node, rpc::from_bytes<NodeRecord>(record.payload));
        table_.restore(node.node, node.incarnation, node.born);
        break;
      }
      case RecordKind::kDecided: {
        ASSIGN_OR_RETURN(memory.decided, rpc::from_bytes<recovery::EpochPlan>(record.payload));
        memory.active = false;
        break;
      }
      case RecordKind::kActive: {
        ASSIGN_OR_RETURN(const base::Epoch epoch, rpc::from_bytes<base::Epoch>(record.payload));
        memory.active = memory.decided.has_value() && memory.decided->epoch == epoch;
        break;
      }
      case RecordKind::kProgress: {
        ASSIGN_OR_RETURN(memory.committed, rpc::from_bytes<base::Step>(record.payload));
        break;
      }
      case RecordKind::kEnded: {
        ASSIGN_OR_RETURN(const protocol::Dismiss ended,
                         rpc::from_bytes<protocol::Dismiss>(record.payload));
        end(base::Status(static_cast<base::StatusCode>(ended.code), ended.why));
        return base::Status::ok();
      }
      default:
        return base::data_loss("journal: unknown record of kind " +
                               std::to_string(static_cast<int>(record.kind)));
    }
  }
  memory.committed = std::max(memory.committed, observer_.steps_known());
  progress_ = memory.committed;
  life_ = life_.next();
  if (!known) {
    const JobRecord job{.job_id = options_.job_id, .fingerprint = fingerprint(options_.job)};
    RETURN_IF_ERROR(journal_.append({RecordKind::kJob, rpc::to_bytes(job)}));
  }
  RETURN_IF_ERROR(journal_.append({RecordKind::kLife, rpc::to_bytes(life_)}));
  observer_.on_event(base::Event("coordinator.start")
                         .with("life", life_)
                         .with("records", records.size())
                         .with("committed", memory.committed));
  ticked_at_ = clock_.now();
  machine_.begin(clock_.now(), known ? std::optional(memory) : std::nullopt);
  return base::Status::ok();
}

base::Task<void> Coordinator::accept_loop() {
  while (true) {
    base::Result<std::unique_ptr<base::Channel>> channel =
        co_await listener_->accept(base::kNoDeadline);
    if (!channel.is_ok()) co_return;  // closed
    if (strangers_.size() >= kStrangersMax) {
      LOG_WARNING("coordinator", "too many connections without a handshake",
                  KV("peer", (*channel)->peer().to_string()));
      continue;
    }
    if (!base::spawn(executor_, gate_, serve(std::move(channel).value())).is_ok()) co_return;
  }
}

// One connection, from its first byte to its last.
base::Task<void> Coordinator::serve(std::unique_ptr<base::Channel> channel) {
  auto messages = std::make_unique<rpc::MessageChannel>(std::move(channel));
  strangers_.push_back(messages.get());
  const base::Result<rpc::PeerIdentity> peer =
      co_await rpc::accept_handshake(*messages, options_.secret, nonces_, clock_);
  std::erase(strangers_, messages.get());
  const bool known_role = peer.is_ok() && (peer->role == rpc::PeerRole::kAgent ||
                                           peer->role == rpc::PeerRole::kObserver);
  if (known_role && end_.has_value()) {
    const protocol::Dismiss dismiss{.code = static_cast<uint32_t>(end_->code()),
                                    .why = end_->message()};
    const base::Status told = co_await messages->send(protocol::to_frame(dismiss, stamp()),
                                                      clock_.now() + kMessageTimeout);
    if (!told.is_ok()) LOG_INFO("coordinator", "end not told", KV("why", told.to_string()));
    messages->close();
    co_return;
  }
  if (!known_role) {  // a stranger disturbs nobody
    LOG_WARNING("coordinator", "connection refused", KV("peer", messages->peer().to_string()),
                KV("why", peer.is_ok() ? "no business here" : peer.status().to_string()));
    messages->close();
    co_return;
  }
  if (peer->role == rpc::PeerRole::kObserver) {
    co_await serve_observer(*messages);
    co_return;
  }
  constexpr size_t kOutgoingMax = 4096;
  auto session = std::make_shared<Session>(kOutgoingMax, clock_);
  session->channel = std::move(messages);
  sessions_.push_back(session);
  co_await serve_agent(session, *peer);
  session->outgoing.close();
  session->channel->close();
  std::erase(sessions_, session);
  changed_.notify_all();
}

base::Task<void> Coordinator::serve_observer(rpc::MessageChannel& channel) {
  strangers_.push_back(&channel);  // closed at the end like one
  while (!end_.has_value()) {
    const auto frame = co_await channel.receive(clock_.now() + kMessageTimeout);
    if (!frame.is_ok() || !protocol::from_frame<protocol::StatusAsk>(*frame).is_ok()) break;
    const protocol::StatusTold told{.json = status_json()};
    const base::Status sent =
        co_await channel.send(protocol::to_frame(told, stamp()), clock_.now() + kMessageTimeout);
    if (!sent.is_ok()) break;
  }
  std::erase(strangers_, &channel);
}

base::Task<void> Coordinator::tick_loop() {
  while (!end_.has_value()) {
    tick();
    // At least as often as a lease needs; changes of the deadlines wake it.
    const base::Nanos latest = clock_.now() + options_.lease.tick_max / 4;
    const base::Nanos due = std::min({latest, machine_.next_deadline(), table_.next_deadline()});
    const base::Status woken =
        co_await changed_.wait(clock_, std::max(due, clock_.now() + base::Nanos(1'000'000)));
    if (!woken.is_ok() && woken.code() != base::StatusCode::kDeadlineExceeded) co_return;
  }
}

void Coordinator::tick() {
  const base::Nanos now = clock_.now();
  const base::Nanos gap = now - std::exchange(ticked_at_, now);
  if (gap > options_.lease.tick_max) machine_.give_back(gap);
  for (const membership::NodeLoss& loss : table_.tick(now)) lose_node(loss.node, loss.why);
  if (!end_.has_value() && now >= machine_.next_deadline()) feed(recovery::Tick{});
  if (end_waits_ && !end_.has_value()) ask_reports();
  if (now >= progress_at_ + kProgressEvery) {
    progress_at_ = now;
    record_progress();
  }
}

// Everybody is told how it ended, and has a moment to leave.
base::Task<void> Coordinator::dismiss_all() {
  const protocol::Dismiss dismiss{.code = static_cast<uint32_t>(end_->code()),
                                  .why = end_->message()};
  const base::Status recorded = journal_.append({RecordKind::kEnded, rpc::to_bytes(dismiss)});
  if (!recorded.is_ok())
    LOG_ERROR("coordinator", "the end is not in the journal", KV("why", recorded.to_string()));
  for (const auto& session : sessions_) tell(*session, protocol::to_frame(dismiss, stamp()));
  const base::Nanos deadline = clock_.now() + options_.dismiss_timeout;
  while (!sessions_.empty() && clock_.now() < deadline) {
    const base::Status waited = co_await changed_.wait(clock_, deadline);
    if (!waited.is_ok()) break;
  }
}

}  // namespace perdure::runtime::coordinator
