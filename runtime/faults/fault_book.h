#pragma once
// FaultBook: which fault strikes whom, and how. Pure: what processes say in, acts out.
//
// Each fault strikes once. At a point of a step a fault that names a worker or node strikes when a
// process of that target is there itself; one that names something else strikes when the first
// worker is there. Points of an epoch change are reached in the coordinator; whoever is the target.

#include <map>
#include <string>
#include <vector>

#include "runtime/faults/fault_spec.h"

namespace perdure::runtime::faults {

enum class ProcessRole : uint8_t { kCoordinator, kAgent, kWorker };

struct ProcessInfo {
  ProcessRole role = ProcessRole::kWorker;
  uint32_t number = 0;  // worker or node
  int pid = 0;
  int group = 0;  // a node is a process group: that of its agent
  std::string to_string() const;
};

struct FaultHit {
  ProcessInfo who;
  std::string point;
  uint64_t step = 0;
  uint64_t epoch = 0;
};

// What the process that is at the point does itself.
enum class FaultAnswer : uint8_t { kGoOn, kExit, kSlow, kDrop };

// What the server does.
struct FaultAct {
  enum class Kind : uint8_t {
    kKill,
    kStop,
    kExit,
    kDrop,
    kStartNode,     // `node`
    kStartWorkers,  // tell the agent `pid`
  };
  Kind kind = Kind::kKill;
  int pid = 0;    // negative: a process group
  int group = 0;  // that the process must be in: its number may be another's by now
  uint32_t node = 0;
  base::Nanos resume_after{0};  // of kStop; 0: never
};

struct Strike {
  size_t index = 0;  // of the fault
  std::string whom;
  FaultAnswer answer = FaultAnswer::kGoOn;
  double factor = 1.0;
  std::vector<FaultAct> acts;  // in this order, before the answer
};

class FaultBook {
 public:
  explicit FaultBook(std::vector<FaultSpec> specs);

  const std::vector<FaultSpec>& specs() const { return specs_; }
  // A process is there; a newer one of its role and number takes its place.
  void add(const ProcessInfo& process);
  void remove(int pid);
  // The faults that strike here; they are used up.
  std::vector<Strike> on_hit(const FaultHit& hit);
  std::vector<Strike> on_time(base::Nanos since_start);
  // When the next fault with a time is due; kNoDeadline.
  base::Nanos next_time() const;
  std::vector<std::string> unused() const;
  // Something that is dead may still come back.
  bool has_unused_start() const;

 private:
  using Key = std::pair<ProcessRole, uint32_t>;

  bool concerns(const FaultSpec& spec, const ProcessInfo& who) const;
  // False when the target is not there.
  bool strike(const FaultSpec& spec, const ProcessInfo* who, Strike& strike) const;
  bool start(const FaultSpec& spec, Strike& strike) const;
  std::vector<FaultAct> aim(const FaultTarget& target, const ProcessInfo* who) const;
  const ProcessInfo* find(ProcessRole role, uint32_t number) const;
  const ProcessInfo* agent_of(int group) const;

  const std::vector<FaultSpec> specs_;
  std::vector<bool> used_;
  std::map<Key, ProcessInfo> processes_;
  std::map<uint32_t, uint32_t> nodes_of_workers_;  // also of dead ones
};

}  // namespace perdure::runtime::faults
