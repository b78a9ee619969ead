#pragma once
// FaultScript: what strikes a simulated cluster, drawn from its seed. Only faults that must be
// survivable are done: after each, every tensor is still with somebody who can be heard; the others
// are skipped. When the last one is over, everything is healed and started again, and the job must
// come to its end.
//
//   script = a few strikes, each at a time or at the nth passing of a named place
//            (step.vote, coordinator.gate, epoch.serve, ...), each with a target and a kind

#include <cstdint>
#include <string>
#include <vector>

#include "chaos/cluster/sim_cluster.h"

namespace perdure::chaos::cluster {

enum class StrikeKind : uint8_t {
  kKillWorker,
  kKillNode,  // its agent and workers; started again after `duration`, or never
  kPowerOff,  // the same, and nobody is told
  kKillCoordinator,
  kStopWorker,  // SIGSTOP for `duration`
  kStopNode,
  kStopCoordinator,
  kCutOff,       // a part of the nodes, for `duration`
  kReplaceNode,  // stopped, started anew elsewhere, and the old one goes on after `duration`
};
std::string_view to_string(StrikeKind kind);

struct Strike {
  StrikeKind kind{};
  std::string place;  // "" : at `when`
  uint32_t nth = 1;   // passing of that place
  base::Nanos when{0};
  uint32_t target = 0;      // worker or node
  uint32_t count = 1;       // of nodes, kCutOff
  base::Nanos duration{0};  // 0: for ever (kills only)
  std::string to_string() const;
};

class FaultScript {
 public:
  // The number of strikes is drawn, too: 0 to strikes_max.
  FaultScript(SimCluster& cluster, uint32_t strikes_max);

  // Before the cluster starts.
  void arm();
  const std::vector<Strike>& strikes() const { return strikes_; }
  uint32_t done() const { return done_; }
  uint32_t skipped() const { return skipped_; }

 private:
  void draw();
  void passed(std::string_view place);
  void strike(const Strike& s);
  bool is_survivable(const Strike& s) const;
  std::vector<base::NodeId> cut_nodes(const Strike& s) const;
  void end_all();

  SimCluster& cluster_;
  const uint32_t strikes_max_;
  base::SeededRandom random_;
  std::vector<Strike> strikes_;
  std::map<std::string, uint32_t, std::less<>> passings_;
  std::vector<bool> used_;
  uint32_t done_ = 0;
  uint32_t skipped_ = 0;
  bool over_ = false;
};

// What a long enough run of seeds reaches (SeedResult::goals).
const std::vector<std::string>& required_goals();

// One seed, from start to end: the outcome as text ("" when all is well) and what was reached.
struct SeedResult {
  std::string problem;
  std::set<std::string> goals;
  std::vector<std::string> story;  // strikes and events, when there is a problem or `tell` is asked
  uint64_t events = 0;
  base::Nanos virtual_time{0};
  uint32_t strikes = 0;
  uint32_t skipped = 0;
  uint64_t recoveries = 0;
};
struct SeedOptions {
  ClusterOptions cluster;
  uint32_t strikes_max = 6;
  bool tell = false;
  base::Nanos limit = std::chrono::seconds(300);  // of virtual time
};
SeedResult run_seed(const SeedOptions& options);

}  // namespace perdure::chaos::cluster
