#pragma once
// SimNetwork: the links between simulated hosts, and the connections that run over them.
//
// A channel behaves as a TCP stream does: bytes arrive in order or not at all. Below it, segments
// are delayed, lost (and sent again after a timeout), overtaken and duplicated; what of that a
// stream can show is lateness, and in the end a broken connection. A cut link swallows segments in
// silence: the sending side notices after LinkOptions::break_after, a side that only receives never
// does.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/network.h"
#include "base/random.h"
#include "base/trace.h"
#include "base/units.h"
#include "chaos/crash.h"
#include "chaos/event_heap.h"

namespace perdure::chaos {

class SimConnection;
class SimHost;
class SimListener;

// One direction between two hosts.
struct LinkOptions {
  base::Nanos delay{100'000};
  base::Nanos jitter_mean{20'000};       // added to each segment, exponentially distributed
  double loss = 0;                       // probability, per segment and attempt
  double duplicate = 0;                  // probability that a segment arrives twice
  double reorder = 0;                    // probability that a segment is overtaken ...
  base::Nanos reorder_delay{1'000'000};  // ... and then comes so much later
  uint64_t bytes_per_second = 0;         // 0: without limit
  size_t window_bytes = 256 * 1024;      // sent but not yet received; then send() waits
  base::Nanos retransmit_after{200'000'000};
  base::Nanos break_after{15'000'000'000};
};

// From one host to another, by name.
struct HostPair {
  std::string_view from;
  std::string_view to;
};

// Owned by the world and of its thread. Methods that change links are called between the hosts'
// turns.
class SimNetwork {
 public:
  struct Stats {
    uint64_t segments_sent = 0;
    uint64_t segments_delivered = 0;
    uint64_t segments_lost = 0;
    uint64_t duplicates_dropped = 0;
    uint64_t connections_made = 0;
    uint64_t connections_broken = 0;
  };

  SimNetwork(EventHeap& heap, const base::Nanos& now, base::Trace& trace,
             const LinkOptions& default_link, const base::SeededRandom& random);

  // Counts for segments sent from now on.
  void set_link(const HostPair& pair, const LinkOptions& options);

  // One direction; cut both for a symmetric partition.
  void cut(const HostPair& pair);
  void heal(const HostPair& pair);

  // Both directions between every host of `group` and every other host.
  void partition(const std::vector<std::string>& group);
  void heal_all();

  const Stats& stats() const { return stats_; }

  uint32_t index_of(std::string_view name) const;

  // For SimHost: its door to the network, and its death and birth.
  std::unique_ptr<base::Network> make_port(SimHost& host);
  void on_host_start(SimHost& host);
  void on_host_death(SimHost& host, Crash crash);

 private:
  friend class SimConnection;
  friend class SimListener;
  friend class SimPort;
  friend class ConnectAttempt;

  // A pair of hosts, from and to, as one number.
  static uint64_t way(uint32_t from, uint32_t to) { return (uint64_t{from} << 32) | to; }

  // References stay valid.
  const LinkOptions& options(uint32_t from, uint32_t to) const {
    const auto found = special_links_.find(way(from, to));
    return found == special_links_.end() ? default_link_ : found->second;
  }
  bool is_cut(uint32_t from, uint32_t to) const {
    return to < cuts_[from].size() && cuts_[from][to];
  }
  void set_cut(uint32_t from, uint32_t to, bool is_cut);
  SimHost* find_host(std::string_view name) const;
  // Can `from`'s segments reach the kernel of `to` now?
  bool is_reachable(uint32_t from, uint32_t to);
  // When a segment that is sent now arrives, all its losses and resends counted.
  base::Nanos draw_arrival(uint32_t from, uint32_t to, size_t size_bytes);
  void call_at(base::Nanos when, base::UniqueFunction<void()> callback) {
    heap_.add(when, EventHeap::kWorld, std::move(callback));
  }

  EventHeap& heap_;
  const base::Nanos& now_;
  base::Trace& trace_;
  const LinkOptions default_link_;
  base::SeededRandom random_;
  Stats stats_;
  std::vector<SimHost*> hosts_;
  std::vector<bool> is_powered_;  // by host
  // Most pairs of a large world never talk: only what differs from the default takes memory.
  // Looked up only.
  std::unordered_map<uint64_t, LinkOptions> special_links_;  // by way
  std::unordered_map<uint64_t, base::Nanos> busy_until_;     // by way, of links with a limit
  std::vector<std::vector<bool>> cuts_;                      // by sender, by receiver
  std::map<std::pair<uint32_t, uint16_t>, SimListener*> listeners_;  // by host and port
  std::unordered_map<std::string, SimHost*> by_name_;                // looked up only
  std::vector<std::map<uint64_t, SimConnection*>> connections_;      // by host, by their number
  uint64_t connection_last_ = 0;
  uint16_t port_last_ = 20000;
};

}  // namespace perdure::chaos
