#pragma once
// LocalFabric: ranks as threads of one process, for tests of everything that is distributed. A
// LocalSwitch holds the messages; each rank has a LocalFabric on it. Sends are rendezvous: a send
// is done when its receiver took it. A rank that aborted is gone for the others.

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "runtime/collective/fabric.h"

namespace perdure::runtime::collective {

class LocalFabric;

// Owns the queues between all ranks. Outlives its fabrics. All methods may be called by any thread.
class LocalSwitch {
 public:
  explicit LocalSwitch(uint32_t ranks);
  std::unique_ptr<LocalFabric> make_fabric(base::Rank rank);

 private:
  friend class LocalFabric;
  struct Operation {
    std::span<const std::byte> send;
    std::span<std::byte> receive;
    bool done = false;
    base::Status result;
  };
  using Key = std::tuple<uint32_t, uint32_t, uint8_t, uint32_t,
                         uint32_t>;  // from, to, channel, step, index
  struct Queue {
    std::deque<std::shared_ptr<Operation>> sends;  // shared: the queue and the poster's ticket
    std::deque<std::shared_ptr<Operation>> receives;
  };

  void match(Queue& queue);
  void fail_all_of(uint32_t rank, const base::Status& why);

  const uint32_t ranks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Queue> queues_;
  std::set<uint32_t> gone_;
};

class LocalFabric : public Fabric {
 public:
  LocalFabric(LocalSwitch& hub, base::Rank rank) : hub_(hub), rank_(rank) {}

  base::Rank rank() const override { return rank_; }
  uint32_t ranks() const override { return hub_.ranks_; }
  Ticket post_send(base::Rank to, Tag tag, std::span<const std::byte> bytes) override;
  Ticket post_receive(base::Rank from, Tag tag, std::span<std::byte> bytes) override;
  base::Status wait(Ticket ticket, Timeout timeout) override;
  void abort(base::Status why) override;

 private:
  Ticket post(LocalSwitch::Key key, std::shared_ptr<LocalSwitch::Operation> operation);

  LocalSwitch& hub_;
  const base::Rank rank_;
  std::map<uint32_t, std::shared_ptr<LocalSwitch::Operation>> open_;  // guarded by hub_.mutex_
  uint32_t next_ = 0;
  base::Status aborted_;  // guarded by hub_.mutex_
};

}  // namespace perdure::runtime::collective
