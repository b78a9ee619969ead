#pragma once
// FaultSpec: one fault that a test of a job asks for.
//
//   at=step:20,phase=reduce target=worker:2 do=kill
//   at=epoch:2,phase=prepare target=coordinator do=stop:1.5
//   at=time:1.5s target=node:1 do=start
//
//   at      step:N[,phase=P]    when step N is computed; fault point step.P, reached in workers
//           epoch:N[,phase=P]   in the change to epoch N; fault point coordinator.P
//           time:T              so long (1.5s, 200ms) after the job was started
//   target  worker:N  node:N  coordinator  job  source (who serves state; only with
//           epoch:N,phase=transfer; fault point epoch.serve, reached in workers)
//   do      kill  stop[:SECONDS]  exit  slow:FACTOR  drop  start

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace perdure::runtime::faults {

enum class FaultMoment : uint8_t { kStep, kEpoch, kTime };
enum class TargetKind : uint8_t { kWorker, kNode, kCoordinator, kJob, kSource };
enum class FaultDeed : uint8_t {
  kKill,   // SIGKILL
  kStop,   // SIGSTOP, and SIGCONT after `stop_time` when that is not 0
  kExit,   // the process exits by itself, with code 0
  kSlow,   // computes `factor` times as long from now on
  kDrop,   // all its TCP connections are shut down
  kStart,  // a killed node or worker is brought back
};

struct FaultTarget {
  TargetKind kind = TargetKind::kJob;
  uint32_t number = 0;  // of a worker or node
  std::string to_string() const;
  friend bool operator==(const FaultTarget&, const FaultTarget&) = default;
};

struct FaultSpec {
  std::string text;  // as it was given
  FaultMoment moment = FaultMoment::kStep;
  uint64_t number = 0;  // of the step or epoch
  std::string phase;    // "" with a time
  base::Nanos time{0};
  FaultTarget target;
  FaultDeed deed = FaultDeed::kKill;
  base::Nanos stop_time{0};
  double factor = 1.0;

  // The fault point where it strikes; "" with a time.
  std::string point() const;
  // Is this that point at that time?
  bool is_reached(std::string_view at, uint64_t step, uint64_t epoch) const;
};

// kInvalidArgument: one line that names the part and what is allowed.
base::Result<FaultSpec> parse_fault(std::string_view text);
base::Result<std::vector<FaultSpec>> parse_faults(const std::vector<std::string>& texts);

}  // namespace perdure::runtime::faults
