#include "runtime/collective/local_fabric.h"

#include <cstring>

namespace perdure::runtime::collective {

LocalSwitch::LocalSwitch(uint32_t ranks) : ranks_(ranks) { CHECK_GT(ranks, 0u); }

std::unique_ptr<LocalFabric> LocalSwitch::make_fabric(base::Rank rank) {
  CHECK_LT(rank.value(), ranks_);
  return std::make_unique<LocalFabric>(*this, rank);
}

void LocalSwitch::match(Queue& queue) {
  while (!queue.sends.empty() && !queue.receives.empty()) {
    Operation& send = *queue.sends.front();
    Operation& receive = *queue.receives.front();
    if (send.send.size() == receive.receive.size()) {
      if (!send.send.empty()) {
        std::memcpy(receive.receive.data(), send.send.data(), send.send.size());
      }
    } else {
      receive.result =
          base::data_loss("a message of " + std::to_string(send.send.size()) + " bytes where " +
                          std::to_string(receive.receive.size()) + " were expected");
    }
    send.done = receive.done = true;
    queue.sends.pop_front();
    queue.receives.pop_front();
  }
}

// What waits for or comes from `rank` ends now: on its own side with its reason, on the others' as
// unavailable.
void LocalSwitch::fail_all_of(uint32_t rank, const base::Status& why) {
  gone_.insert(rank);
  for (auto& [key, queue] : queues_) {
    const bool from_it = std::get<0>(key) == rank;
    const bool to_it = std::get<1>(key) == rank;
    if (!from_it && !to_it) continue;
    const base::Status gone = base::unavailable("rank " + std::to_string(rank) + " is gone");
    for (auto* side : {&queue.sends, &queue.receives}) {
      const bool own = (side == &queue.sends) ? from_it : to_it;
      for (auto& operation : *side) {
        operation->done = true;
        operation->result = own ? why : gone;
      }
      side->clear();
    }
  }
}

Ticket LocalFabric::post(LocalSwitch::Key key, std::shared_ptr<LocalSwitch::Operation> operation) {
  const std::lock_guard lock(hub_.mutex_);
  const Ticket ticket{next_++, 0};
  open_[ticket.slot] = operation;
  if (!aborted_.is_ok()) {
    operation->done = true;
    operation->result = aborted_;
    return ticket;
  }
  const uint32_t peer = std::get<0>(key) == rank_.value() ? std::get<1>(key) : std::get<0>(key);
  if (hub_.gone_.contains(peer)) {
    operation->done = true;
    operation->result = base::unavailable("rank " + std::to_string(peer) + " is gone");
    return ticket;
  }
  LocalSwitch::Queue& queue = hub_.queues_[key];
  (operation->receive.data() != nullptr ? queue.receives : queue.sends).push_back(operation);
  hub_.match(queue);
  hub_.changed_.notify_all();
  return ticket;
}

Ticket LocalFabric::post_send(base::Rank to, Tag tag, std::span<const std::byte> bytes) {
  CHECK_NE(to, rank_);
  CHECK(!bytes.empty());
  auto operation = std::make_shared<LocalSwitch::Operation>();
  operation->send = bytes;
  return post({rank_.value(), to.value(), static_cast<uint8_t>(tag.channel), tag.step, tag.index},
              std::move(operation));
}

Ticket LocalFabric::post_receive(base::Rank from, Tag tag, std::span<std::byte> bytes) {
  CHECK_NE(from, rank_);
  CHECK(!bytes.empty());
  auto operation = std::make_shared<LocalSwitch::Operation>();
  operation->receive = bytes;
  return post({from.value(), rank_.value(), static_cast<uint8_t>(tag.channel), tag.step, tag.index},
              std::move(operation));
}

base::Status LocalFabric::wait(Ticket ticket, Timeout timeout) {
  std::unique_lock lock(hub_.mutex_);
  const auto found = open_.find(ticket.slot);
  CHECK(found != open_.end()) << "waited twice for ticket " << ticket.slot;
  const std::shared_ptr<LocalSwitch::Operation> operation = found->second;
  open_.erase(found);
  if (!hub_.changed_.wait_for(lock, timeout, [&] { return operation->done; })) {
    aborted_ =
        base::deadline_exceeded("no message within " + std::to_string(timeout.count()) + " ms");
    hub_.fail_all_of(rank_.value(), aborted_);
    hub_.changed_.notify_all();
    return aborted_;
  }
  return operation->result;
}

void LocalFabric::abort(base::Status why) {
  CHECK(!why.is_ok());
  const std::lock_guard lock(hub_.mutex_);
  if (!aborted_.is_ok()) return;
  aborted_ = why;
  hub_.fail_all_of(rank_.value(), why);
  hub_.changed_.notify_all();
}

}  // namespace perdure::runtime::collective
