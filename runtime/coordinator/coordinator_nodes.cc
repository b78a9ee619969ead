// Agents: joining, leases, what they say of their workers.

#include "base/log.h"
#include "runtime/coordinator/coordinator.h"
#include "runtime/coordinator/journal_records.h"

namespace perdure::runtime::coordinator {
namespace {

constexpr base::Nanos kMessageTimeout = std::chrono::seconds(10);

uint32_t to_ms(base::Nanos time) {
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
}

}  // namespace

rpc::Stamp Coordinator::stamp() const {
  return {.epoch = machine_.epoch(), .incarnation = life_, .budget_ms = 0};
}

void Coordinator::tell(Session& session, rpc::Frame frame) {
  ++traffic_.frames_out;
  traffic_.bytes_out += rpc::kFrameHeaderBytes + frame.payload.size();
  const base::Status queued = session.outgoing.try_push(std::move(frame));
  if (queued.is_ok() || queued.code() == base::StatusCode::kCancelled) return;
  // A node that does not read is as good as lost; its lease would say so later.
  LOG_WARNING("coordinator", "node does not read", KV("node", session.node));
  session.channel->close();
}

base::Task<void> Coordinator::send_loop(std::shared_ptr<Session> session) {
  while (true) {
    base::Result<rpc::Frame> next = co_await session->outgoing.pop(base::kNoDeadline);
    if (!next.is_ok()) co_return;
    const base::Status sent =
        co_await session->channel->send(std::move(next).value(), clock_.now() + kMessageTimeout);
    if (!sent.is_ok()) {
      session->channel->close();  // the receiving side ends the session
      co_return;
    }
  }
}

base::Task<void> Coordinator::serve_agent(std::shared_ptr<Session> session,
                                          rpc::PeerIdentity peer) {
  const base::Status welcomed = co_await welcome(*session, peer);
  if (!welcomed.is_ok()) {
    LOG_WARNING("coordinator", "node refused", KV("node", peer.number),
                KV("why", welcomed.to_string()));
    const protocol::Dismiss dismiss{.code = static_cast<uint32_t>(welcomed.code()),
                                    .why = welcomed.message()};
    const base::Status sent = co_await session->channel->send(protocol::to_frame(dismiss, stamp()),
                                                              clock_.now() + kMessageTimeout);
    if (!sent.is_ok()) LOG_INFO("coordinator", "refusal not told", KV("node", peer.number));
    co_return;
  }
  if (!base::spawn(executor_, gate_, send_loop(session)).is_ok()) co_return;
  const base::Status ended = co_await follow(*session);
  Node& node = nodes_[session->node];
  if (node.session != session.get()) co_return;  // a newer one has taken over
  node.session = nullptr;
  if (end_.has_value()) co_return;
  if (table_.lose(session->node, session->incarnation))
    lose_node(session->node, "connection lost: " + ended.to_string());
}

base::Task<base::Status> Coordinator::welcome(Session& session, rpc::PeerIdentity peer) {
  if (peer.number >= options_.nodes) {
    co_return base::invalid_argument("node " + std::to_string(peer.number) + " of a job with " +
                                     std::to_string(options_.nodes));
  }
  CO_ASSIGN_OR_RETURN(const rpc::Frame frame,
                      co_await session.channel->receive(clock_.now() + kMessageTimeout));
  CO_ASSIGN_OR_RETURN(const protocol::NodeJoin join,
                      protocol::from_frame<protocol::NodeJoin>(frame));
  session.node = base::NodeId(peer.number);
  if (join.node != session.node) co_return base::invalid_argument("two names for one node");
  if (!join.job_id.empty() && join.job_id != options_.job_id)
    co_return base::invalid_argument("a node of job " + join.job_id);
  const membership::NodeInfo before = table_.nodes().contains(session.node)
                                          ? table_.nodes().at(session.node)
                                          : membership::NodeInfo{};
  CO_ASSIGN_OR_RETURN(session.incarnation,
                      table_.join({session.node, peer.incarnation, join.born}, clock_.now()));
  if (session.incarnation != before.incarnation) {
    const NodeRecord entry{session.node, session.incarnation, join.born};
    if (!record(RecordKind::kNode, rpc::to_bytes(entry)))
      co_return base::internal("the journal cannot be written");
    if (before.state == membership::NodeState::kAlive)
      lose_node(session.node, "replaced by a new process");
  }
  Node& node = nodes_[session.node];
  if (node.session != nullptr) {
    // Orders may have been lost with the old connection.
    node.session->channel->close();
    lose_node(session.node, "it connected anew");
  }
  node.session = &session;
  protocol::NodeWelcome message{.incarnation = session.incarnation,
                                .job_id = options_.job_id,
                                .lease_ms = to_ms(options_.lease.lease),
                                .beat_ms = to_ms(options_.lease.beat),
                                .job = options_.job};
  for (uint32_t i = 0; i < options_.workers_per_node; ++i)
    message.workers.push_back(base::WorkerId(peer.number * options_.workers_per_node + i));
  tell(session, protocol::to_frame(message, stamp()));
  observer_.on_event(base::Event("node.join")
                         .with("node", session.node)
                         .with("incarnation", session.incarnation)
                         .with("pid", join.pid)
                         .with("workers_up", join.workers.size()));
  // Whoever is not in the list has died while we did not hear of it.
  if (machine_.plan().has_value()) {
    std::vector<recovery::PlanMember> members;
    for (const recovery::PlanMember& member : machine_.plan()->members) {
      if (member.node == session.node) members.push_back(member);
    }
    for (const recovery::PlanMember& member : members) {
      bool listed = false;
      for (const protocol::WorkerInfo& info : join.workers)
        listed = listed || (info.worker == member.worker && info.incarnation == member.incarnation);
      if (!listed) {
        feed(recovery::MemberDown{member.worker, member.incarnation,
                                  "it ended while its node was not connected"});
      }
    }
  }
  for (const protocol::WorkerInfo& info : join.workers) worker_up(session.node, info);
  co_return base::Status::ok();
}

base::Task<base::Status> Coordinator::follow(Session& session) {
  while (true) {
    CO_ASSIGN_OR_RETURN(const rpc::Frame frame,
                        co_await session.channel->receive(base::kNoDeadline));
    ++traffic_.frames_in;
    if (end_.has_value()) continue;  // until it leaves
    if (!table_.is_alive(session.node, session.incarnation))
      co_return base::aborted("its lease is over");
    CO_RETURN_IF_ERROR(handle(session, frame));
  }
}

base::Status Coordinator::handle(Session& session, const rpc::Frame& frame) {
  switch (static_cast<protocol::MessageType>(frame.type)) {
    case protocol::MessageType::kBeat: {
      ASSIGN_OR_RETURN(const protocol::Beat beat, protocol::from_frame<protocol::Beat>(frame));
      RETURN_IF_ERROR(table_.beat(session.node, session.incarnation, clock_.now()));
      nodes_[session.node].step = beat.step;
      const protocol::BeatAck ack{.sequence = beat.sequence};
      tell(session, protocol::to_frame(ack, stamp()));
      return base::Status::ok();
    }
    case protocol::MessageType::kWorkerUp: {
      ASSIGN_OR_RETURN(const protocol::WorkerUp up,
                       protocol::from_frame<protocol::WorkerUp>(frame));
      worker_up(session.node, up.info);
      return base::Status::ok();
    }
    case protocol::MessageType::kWorkerDown: {
      ASSIGN_OR_RETURN(const protocol::WorkerDown down,
                       protocol::from_frame<protocol::WorkerDown>(frame));
      worker_down(session.node, down);
      return base::Status::ok();
    }
    case protocol::MessageType::kFromWorkers: {
      ASSIGN_OR_RETURN(const protocol::FromWorkers from,
                       protocol::from_frame<protocol::FromWorkers>(frame));
      for (const protocol::WorkerMessage& message : from.messages) {
        if (end_.has_value()) break;
        if (is_home(session.node, message.worker)) hear(message);
      }
      return base::Status::ok();
    }
    default:
      return base::data_loss("message of type " + std::to_string(frame.type) +
                             " that no agent sends");
  }
}

// A node speaks for its own workers only.
bool Coordinator::is_home(base::NodeId node, base::WorkerId worker) const {
  if (worker.value() / options_.workers_per_node == node.value()) return true;
  LOG_WARNING("coordinator", "worker of another node", KV("node", node), KV("worker", worker));
  return false;
}

void Coordinator::worker_up(base::NodeId node, const protocol::WorkerInfo& info) {
  if (!is_home(node, info.worker)) return;
  nodes_[node].workers[info.worker] = info;
  const auto does = [&] {
    switch (info.activity) {
      case protocol::Activity::kLoaded:
        return recovery::MemberDoes::kLoaded;
      case protocol::Activity::kRunning:
        return recovery::MemberDoes::kRunning;
      case protocol::Activity::kFinished:
        return recovery::MemberDoes::kFinished;
      default:
        return recovery::MemberDoes::kNothing;
    }
  }();
  feed(recovery::MemberUp{{info.worker, info.incarnation, node}, info.epoch, does});
}

void Coordinator::worker_down(base::NodeId node, const protocol::WorkerDown& down) {
  if (!is_home(node, down.worker)) return;
  auto& workers = nodes_[node].workers;
  const auto found = workers.find(down.worker);
  const bool known = found != workers.end() && found->second.incarnation == down.incarnation;
  if (known) workers.erase(found);
  if (!known && machine_.phase() == recovery::Phase::kGathering &&
      down.how.starts_with("exit code") && ++nodes_[node].early_exits >= options_.early_exits_max) {
    end(base::aborted("worker " + std::to_string(down.worker.value()) +
                      " ended early: " + down.how));
    return;
  }
  feed(recovery::MemberDown{.worker = down.worker,
                            .incarnation = down.incarnation,
                            .how = down.how,
                            .has_ended = !down.how.starts_with("no beat")});
}

void Coordinator::lose_node(base::NodeId node, const std::string& why) {
  const auto workers = std::exchange(nodes_[node].workers, {});
  observer_.on_event(base::Event("node.lost").with("node", node).with("why", why));
  for (const auto& [worker, info] : workers) {
    feed(recovery::MemberDown{.worker = worker,
                              .incarnation = info.incarnation,
                              .how = "node " + std::to_string(node.value()) + ": " + why,
                              .has_ended = false});
  }
}

}  // namespace perdure::runtime::coordinator
