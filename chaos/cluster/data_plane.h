#pragma once
// DataPlane: what the fake engines of a simulated cluster use instead of collectives. It knows who
// of an epoch is alive and connected, and lets a barrier of all its ranks pass: some ranks hear of
// it earlier than others, some never, as with real messages.
//
// A barrier stands for a reduction or a vote. It passes when every rank has arrived and no two of
// them are cut off from each other; each rank then hears of it after a delay of its own, unless it
// has died, left or been cut off by then. When a rank dies or leaves, its peers are told after a
// while (a connection that is reset), or never (a host without power, a cut cable).
//
// Threads: the world's. Engines are hosts' objects and may vanish at any time: they are looked up
// by worker and incarnation, never kept.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "base/status.h"
#include "base/units.h"
#include "chaos/sim_world.h"

namespace perdure::chaos::cluster {

class FakeEngine;

enum class BarrierKind : uint8_t { kConnect, kReduce, kVote, kEnd };

struct BarrierKey {
  BarrierKind kind{};
  uint64_t step = 0;  // being computed
  friend auto operator<=>(const BarrierKey&, const BarrierKey&) = default;
};

struct DataPlaneOptions {
  base::Nanos message_mean = std::chrono::milliseconds(1);
  double late = 0.02;  // probability that a rank hears of a barrier very late ...
  base::Nanos late_mean = std::chrono::milliseconds(200);
  double silent_loss = 0.3;  // probability that a peer is never told of a loss
  base::Nanos loss_mean = std::chrono::milliseconds(10);
};

class DataPlane {
 public:
  // Does not touch the world before it is used.
  DataPlane(SimWorld& world, uint64_t seed, const DataPlaneOptions& options);

  // -- by engines
  void attach(FakeEngine& engine);
  void detach(FakeEngine& engine);  // its process ends
  struct Seat {
    base::Epoch epoch;
    base::Rank rank;
    uint32_t ranks = 0;
  };
  void sit(FakeEngine& engine, const Seat& seat);
  void leave(FakeEngine& engine);
  // `wants_hold` is the or over all ranks when the barrier passes.
  void arrive(FakeEngine& engine, const BarrierKey& key, bool wants_hold);
  // The engine at this rank of the epoch, when it is alive and can be reached from `by`.
  FakeEngine* peer(const FakeEngine& by, base::Epoch epoch, base::Rank rank);

  // -- by the cluster
  // Hosts of different sides are cut off from each other.
  void set_side(uint32_t host, uint32_t side);
  void heal_all();

 private:
  struct EngineKey {
    base::WorkerId worker;
    base::Incarnation incarnation;
    friend auto operator<=>(const EngineKey&, const EngineKey&) = default;
  };
  struct Barrier {
    std::set<base::Rank> arrived;
    bool wants_hold = false;
    bool passed = false;
  };
  struct Group {
    uint32_t ranks = 0;
    std::map<base::Rank, EngineKey> seats;  // also of those that have died or left
    std::set<base::Rank> present;
    std::set<base::Rank> untold;  // of those present: will not hear of a loss yet
    std::map<BarrierKey, Barrier> barriers;
  };

  FakeEngine* find(const EngineKey& key);
  uint32_t side_of(const EngineKey& key);
  void try_pass(base::Epoch epoch, Group& group, const BarrierKey& key);
  void deliver(base::Epoch epoch, const BarrierKey& key, base::Rank rank, bool wants_hold);
  void tell_loss(base::Epoch epoch, base::Rank lost);
  base::Nanos draw(base::Nanos mean);

  SimWorld& world_;
  const DataPlaneOptions options_;
  base::SeededRandom random_;
  std::map<EngineKey, FakeEngine*> engines_;
  std::map<EngineKey, std::map<base::Epoch, base::Rank>> seats_;  // where it has not left
  std::map<base::Epoch, Group> groups_;
  std::map<uint32_t, uint32_t> sides_;  // by host; 0 where nothing is said
};

}  // namespace perdure::chaos::cluster
