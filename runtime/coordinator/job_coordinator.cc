#include "runtime/coordinator/job_coordinator.h"

#include "base/log.h"
#include "base/sleep.h"

namespace perdure::runtime::coordinator {
namespace {

constexpr base::Nanos kMessageTimeout = std::chrono::seconds(10);
// One dead worker makes errors everywhere; the telling one may be told a little later than the
// first.
constexpr base::Nanos kFailureGrace = std::chrono::milliseconds(300);

// How much an error says about the cause: a lost peer is a consequence, its process's end the
// reason.
int weight(const base::Status& status) {
  switch (status.code()) {
    case base::StatusCode::kOk:
      return 0;
    case base::StatusCode::kUnavailable:
    case base::StatusCode::kCancelled:
      return 1;
    case base::StatusCode::kDeadlineExceeded:
      return 2;
    case base::StatusCode::kAborted:
      return 3;
    default:
      return 4;
  }
}

// Secrets of equal length take equal time.
bool same_token(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

}  // namespace

JobCoordinator::JobCoordinator(const CoordinatorOptions& options,
                               std::unique_ptr<base::Listener> listener, base::Clock& clock,
                               const base::Executor& executor, JobObserver& observer)
    : options_(options),
      listener_(std::move(listener)),
      clock_(clock),
      executor_(executor),
      observer_(observer),
      members_(options.ranks) {
  CHECK_GT(options.ranks, 0u);
}

bool JobCoordinator::all(bool Member::*flag) const {
  for (const Member& member : members_) {
    if (!(member.*flag)) return false;
  }
  return true;
}

void JobCoordinator::fail(base::Status why) {
  CHECK(!why.is_ok());
  if (!stopped_ && weight(why) > weight(failure_)) failure_ = std::move(why);
  changed_.notify_all();
}

void JobCoordinator::stop(base::Status why) {
  CHECK(!why.is_ok());
  if (!failure_.is_ok() || all(&Member::finished)) return;  // it ends anyway
  stopped_ = true;
  failure_ = std::move(why);
  changed_.notify_all();
}

void JobCoordinator::worker_ended(base::WorkerId worker, WorkerEnd end, const std::string& how) {
  CHECK_LT(worker.value(), members_.size());
  if (members_[worker.value()].finished) return;
  const std::string text = "worker " + std::to_string(worker.value()) + " ended early: " + how;
  fail(end == WorkerEnd::kKilled ? base::internal(text) : base::aborted(text));
}

base::Task<base::Status> JobCoordinator::run() {
  CO_RETURN_IF_ERROR(base::spawn(executor_, gate_, accept_loop()));
  CO_RETURN_IF_ERROR(base::spawn(executor_, gate_, watch_join()));
  while (failure_.is_ok() && !all(&Member::finished)) co_await changed_.wait();
  if (failure_.is_ok()) {
    co_await say_goodbye();
  } else {
    const base::Status slept = co_await base::sleep_for(clock_, kFailureGrace);
    CHECK(slept.is_ok());
  }
  over_ = true;
  listener_->close();
  for (rpc::MessageChannel* channel : arriving_) channel->close();
  for (Member& member : members_) {
    if (member.channel != nullptr) member.channel->close();
  }
  changed_.notify_all();
  co_await gate_.close();
  co_return failure_;
}

base::Task<void> JobCoordinator::watch_join() {
  const base::Nanos deadline = clock_.now() + options_.join_timeout;
  while (failure_.is_ok() && !started_) {
    const base::Status waited = co_await changed_.wait(clock_, deadline);
    if (waited.is_ok() || started_ || !failure_.is_ok()) continue;
    std::string missing;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (!members_[r].ready) missing += (missing.empty() ? "" : ", ") + std::to_string(r);
    }
    fail(base::deadline_exceeded("workers not ready in time: " + missing));
  }
}

base::Task<void> JobCoordinator::accept_loop() {
  while (true) {
    base::Result<std::unique_ptr<base::Channel>> channel =
        co_await listener_->accept(base::kNoDeadline);
    if (!channel.is_ok()) co_return;  // closed
    if (!base::spawn(executor_, gate_, serve(std::move(channel).value())).is_ok()) co_return;
  }
}

// Not a coroutine, and never given a temporary: g++ 12 destroys an aggregate made inside a co_await
// expression twice.
template <typename Message>
base::Task<base::Status> JobCoordinator::send(rpc::MessageChannel& channel,
                                              const Message& message) {
  return channel.send(static_cast<uint16_t>(Message::kType), message.encode(),
                      clock_.now() + kMessageTimeout);
}

// One connection, from its first byte to its last.
base::Task<void> JobCoordinator::serve(std::unique_ptr<base::Channel> channel) {
  if (over_) co_return;
  auto messages = std::make_unique<rpc::MessageChannel>(std::move(channel));
  base::Rank rank;
  arriving_.push_back(messages.get());
  const base::Status admitted = co_await admit(*messages, rank);
  std::erase(arriving_, messages.get());
  if (!admitted.is_ok()) {  // a stranger disturbs nobody
    LOG_WARNING("coordinator", "connection refused", KV("peer", messages->peer().to_string()),
                KV("why", admitted.to_string()));
    messages->close();
    co_return;
  }
  members_[rank.value()].channel = std::move(messages);
  const base::Status ended = co_await follow(rank);
  if (!ended.is_ok() && !members_[rank.value()].finished) {
    fail(ended.annotate("worker " + std::to_string(rank.value())));
  }
}

base::Task<base::Status> JobCoordinator::admit(rpc::MessageChannel& channel, base::Rank& rank) {
  CO_ASSIGN_OR_RETURN(const rpc::Frame frame,
                      co_await channel.receive(clock_.now() + kMessageTimeout));
  if (frame.type != static_cast<uint16_t>(rpc::MessageType::kHello)) {
    co_return base::invalid_argument("the first message is not a hello");
  }
  CO_ASSIGN_OR_RETURN(const rpc::Hello hello, rpc::Hello::decode(frame.payload));
  if (!same_token(hello.job_token, options_.job_token))
    co_return base::invalid_argument("wrong job token");
  if (hello.worker.value() >= members_.size())
    co_return base::invalid_argument("no such worker in this job");
  Member& member = members_[hello.worker.value()];
  if (member.taken) co_return base::already_exists("worker is here already");
  member.taken = true;  // before the send, during which a second one may come
  rank = base::Rank(hello.worker.value());
  const rpc::Assignment assignment{.rank = rank,
                                   .ranks = options_.ranks,
                                   .epoch = base::Epoch(1),
                                   .job_toml = options_.job_toml,
                                   .job_source = options_.job_source,
                                   .overrides = options_.overrides};
  const base::Status sent = co_await send(channel, assignment);
  member.taken = sent.is_ok();
  co_return sent;
}

base::Task<base::Status> JobCoordinator::follow(base::Rank rank) {
  Member& member = members_[rank.value()];
  while (true) {
    CO_ASSIGN_OR_RETURN(const rpc::Frame frame,
                        co_await member.channel->receive(base::kNoDeadline));
    CO_RETURN_IF_ERROR(handle(rank, frame));
    if (!started_ && all(&Member::ready)) {
      started_ = true;
      co_await broadcast_start();
    }
    changed_.notify_all();
  }
}

// Ready comes once; reports and Finished follow the Start; a failure may be told at any time.
bool JobCoordinator::is_in_order(const Member& member, rpc::MessageType type) const {
  switch (type) {
    case rpc::MessageType::kReady:
      return !member.ready;
    case rpc::MessageType::kStepReport:
    case rpc::MessageType::kEvaluationReport:
    case rpc::MessageType::kFinished:
      return started_ && !member.finished;
    default:
      return true;
  }
}

base::Status JobCoordinator::handle(base::Rank rank, const rpc::Frame& frame) {
  Member& member = members_[rank.value()];
  const auto type = static_cast<rpc::MessageType>(frame.type);
  if (!is_in_order(member, type)) {
    return base::data_loss("message of type " + std::to_string(frame.type) + " out of order");
  }
  switch (type) {
    case rpc::MessageType::kReady: {
      ASSIGN_OR_RETURN(member.ready_message, rpc::Ready::decode(frame.payload));
      member.ready = true;
      observer_.on_ready(rank, member.ready_message);
      return base::Status::ok();
    }
    case rpc::MessageType::kStepReport: {
      ASSIGN_OR_RETURN(const rpc::StepReport report, rpc::StepReport::decode(frame.payload));
      observer_.on_step(report);
      return base::Status::ok();
    }
    case rpc::MessageType::kEvaluationReport: {
      ASSIGN_OR_RETURN(const rpc::EvaluationReport report,
                       rpc::EvaluationReport::decode(frame.payload));
      observer_.on_evaluation(report);
      return base::Status::ok();
    }
    case rpc::MessageType::kFinished: {
      ASSIGN_OR_RETURN(const rpc::Finished finished, rpc::Finished::decode(frame.payload));
      member.finished = true;
      observer_.on_finished(rank, finished);
      return base::Status::ok();
    }
    case rpc::MessageType::kFailed: {
      ASSIGN_OR_RETURN(const rpc::Failed failed, rpc::Failed::decode(frame.payload));
      return base::Status(static_cast<base::StatusCode>(failed.code), failed.text);
    }
    default:
      return base::data_loss("unexpected message of type " + std::to_string(frame.type));
  }
}

base::Task<void> JobCoordinator::broadcast_start() {
  rpc::Start start;
  for (const Member& member : members_) start.addresses.push_back(member.ready_message.address);
  observer_.on_start();
  for (size_t r = 0; r < members_.size(); ++r) {
    const base::Status sent = co_await send(*members_[r].channel, start);
    if (!sent.is_ok()) fail(sent.annotate("starting worker " + std::to_string(r)));
  }
}

base::Task<void> JobCoordinator::say_goodbye() {
  for (Member& member : members_) {
    const rpc::Goodbye goodbye;
    const base::Status sent = co_await send(*member.channel, goodbye);
    if (!sent.is_ok()) LOG_WARNING("coordinator", "goodbye not sent", KV("why", sent.to_string()));
  }
}

}  // namespace perdure::runtime::coordinator
