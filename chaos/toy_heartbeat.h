#pragma once
// ToyHeartbeat: the smallest protocol that needs every seam. Every node keeps a channel to every
// other node, sends a beat on it every period, and calls a peer dead when nothing was heard of it
// for a while. It is the world's own test (is a simulated hour fast, and the same everywhere?), not
// Perdure's failure detector.
//
//   node i ── beat(i, incarnation, number) ──► node j       one connection for each direction
//
// A node's verdicts are appended to its file "verdicts.log", synced, so that they survive it.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/gate.h"
#include "base/network.h"
#include "base/stop_token.h"
#include "base/task.h"
#include "base/units.h"
#include "chaos/sim_host.h"

namespace perdure::chaos {

struct HeartbeatOptions {
  std::vector<std::string> nodes;  // all of them, this one included
  uint16_t port = 7;
  base::Nanos period{3'000'000'000};
  base::Nanos dead_after{10'000'000'000};
};

// Runs on a host's thread from its constructor on, and dies with the host.
class ToyHeartbeat final : public SimProcess {
 public:
  // Told of every verdict: who, about whom, and what.
  struct Verdict {
    std::string by;
    std::string about;
    bool is_dead;
    base::Nanos when;
  };
  using Observer = std::function<void(const Verdict&)>;

  ToyHeartbeat(SimHost& host, const HeartbeatOptions& options, Observer observer);

  uint64_t beats_sent() const { return beats_sent_; }
  uint64_t beats_received() const { return beats_received_; }

 private:
  struct Peer {
    base::Nanos heard_last{0};
    uint64_t incarnation = 0;
    bool is_dead = false;
  };

  void start(base::Task<void> task);
  base::Task<void> accept_loop();
  base::Task<void> receive_loop(std::unique_ptr<base::Channel> channel);
  base::Task<void> send_loop(std::string peer);
  base::Task<base::Status> send_beats(base::Channel& channel);
  base::Task<void> judge_loop();
  base::Status on_beat(base::ByteSpan message);
  void report(const std::string& about, Peer& peer, bool is_dead);

  SimHost& host_;
  const HeartbeatOptions options_;
  const Observer observer_;
  uint64_t beats_sent_ = 0;
  uint64_t beats_received_ = 0;
  std::map<std::string, Peer> peers_;
  std::unique_ptr<base::Listener> listener_;
  std::unique_ptr<base::File> verdicts_;
  base::Gate gate_;
};

}  // namespace perdure::chaos
