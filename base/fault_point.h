#pragma once
// Named places in the code where chaos can strike, also in the release binary. Unarmed (always,
// unless chaos installs a handler) a point costs one load and a branch.
//
//   FAULT_POINT("ckpt.before_commit");                       // may crash or delay
//   RETURN_IF_ERROR(FAULT_STATUS("ckpt.write"));             // may also fail
//   FAULT_BYTES("engine.gradient", std::as_writable_bytes(gradient));  // may also flip bits

#include <atomic>
#include <string_view>

#include "base/status.h"
#include "base/units.h"

namespace perdure::base {

class FaultHandler {
 public:
  virtual ~FaultHandler() = default;

  // Called on whatever thread reaches the point. The returned error is what a FAULT_STATUS gives to
  // its caller. `bytes` is empty except at a FAULT_BYTES.
  virtual Status at_fault_point(std::string_view name, MutableByteSpan bytes) = 0;
};

// Installs the process' only handler for its own lifetime. The handler outlives it, and no thread
// is inside a fault point when it is destroyed.
class ScopedFaultHandler {
 public:
  explicit ScopedFaultHandler(FaultHandler& handler);
  ~ScopedFaultHandler();
  ScopedFaultHandler(const ScopedFaultHandler&) = delete;
  ScopedFaultHandler& operator=(const ScopedFaultHandler&) = delete;
};

// Process-wide on purpose: points sit in code that knows nothing of chaos.
extern std::atomic<FaultHandler*> fault_handler;

// The process' logical time, kept by whoever moves it on (the engine, an epoch change), so that a
// handler can strike "at step 20" or "in epoch 3". Two relaxed stores; nothing reads them unarmed.
struct FaultTime {
  std::atomic<uint64_t> epoch{0};
  std::atomic<uint64_t> step{0};  // being computed: committed steps + 1
};
extern FaultTime fault_time;

inline Status reach_fault_point(std::string_view name, MutableByteSpan bytes = {}) {
  FaultHandler* handler = fault_handler.load(std::memory_order_acquire);
  if (__builtin_expect(handler == nullptr, 1)) return Status::ok();
  return handler->at_fault_point(name, bytes);
}

}  // namespace perdure::base

#define FAULT_STATUS(name) ::perdure::base::reach_fault_point(name)
#define FAULT_BYTES(name, bytes) \
  static_cast<void>(::perdure::base::reach_fault_point(name, bytes).is_ok())
#define FAULT_POINT(name) static_cast<void>(::perdure::base::reach_fault_point(name).is_ok())
