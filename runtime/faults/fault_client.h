#pragma once
// FaultClient: the fault handler of a process of the job. At a point that is armed it asks the
// fault server (in the launcher) and waits, for ever, for the answer.

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fault_point.h"
#include "runtime/faults/fault_wire.h"

namespace perdure::runtime::faults {

struct FaultClientOptions {
  std::string socket;
  ProcessRole role = ProcessRole::kWorker;
  uint32_t number = 0;  // worker or node
};

// Fault points may be reached on any thread. Installed by a ScopedFaultHandler.
class FaultClient final : public base::FaultHandler {
 public:
  // Tells the server that this process is there and learns the list of faults; lets signals of the
  // server strike this process. `clock` only tells the time. kUnavailable, kDataLoss.
  static base::Result<std::unique_ptr<FaultClient>> connect(const FaultClientOptions& options,
                                                            const base::Clock& clock);

  // Always ok: these faults do not make calls fail.
  base::Status at_fault_point(std::string_view name, base::MutableByteSpan bytes) override;

 private:
  FaultClient(const FaultClientOptions& options, const base::Clock& clock, const ProcessInfo& self)
      : options_(options), clock_(clock), self_(self) {}
  bool is_armed(std::string_view name, uint64_t step, uint64_t epoch) const;
  void ask(std::string_view name, uint64_t step, uint64_t epoch);
  void delay();

  const FaultClientOptions options_;
  const base::Clock& clock_;
  const ProcessInfo self_;
  std::vector<FaultSpec> specs_;
  std::atomic<double> factor_{1.0};
  std::atomic<int64_t> step_began_ns_{0};
};

}  // namespace perdure::runtime::faults
