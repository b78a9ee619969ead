#pragma once
// The connection of one worker, inside the set (worker_set.cc, worker_link.cc).

#include <memory>

#include "runtime/agent/worker_set.h"

namespace perdure::runtime::agent {

struct WorkerSet::Link {
  static constexpr size_t kOutgoingMax = 256;

  Link(std::unique_ptr<base::Channel> raw, base::Clock& clock)
      : channel(std::move(raw)), outgoing(kOutgoingMax, clock) {}
  void close() {
    channel.close();
    outgoing.close();
  }

  rpc::MessageChannel channel;
  base::TaskQueue<rpc::Frame> outgoing;
  base::WorkerId worker;
  base::Incarnation incarnation;
};

}  // namespace perdure::runtime::agent
