#pragma once
// UcxFabric: messages between worker processes over UCX.
//
//   engine thread                communication thread ("comm")
//   post_* ── commands ────────► hands them to UCX
//   wait   ◄─ condition ──────── completion callbacks
//
// The comm thread runs an Asio loop that sleeps on UCX's event fd and on our own; it never polls: with more ranks
// than cores, a polling rank costs the others milliseconds a message. All UCX calls are made there.
//
// Two transports. kTcp: endpoints in peer-error mode, a dead peer ends the operations that wait for it with
// kUnavailable (UCX callback within milliseconds; a receive that was not matched is cancelled by us, since UCX
// does not tie it to a peer). kShm: shared memory, faster, but UCX NEVER reports a dead peer there: only deadlines
// and abort() end a wait. A stopped or cut-off peer shows on neither; that is the heartbeat's task.
//
// Life: create, exchange address() by other means, connect, use, close (or destroy).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/collective/fabric.h"

namespace perdure::runtime::transport {

enum class UcxTransport : uint8_t { kTcp, kShm };

struct UcxOptions {
  base::Rank rank;
  uint32_t ranks = 1;                    // < 2^16
  base::Epoch epoch;                     // in every tag: a message of another epoch matches nothing
  UcxTransport transport = UcxTransport::kTcp;
  std::string network_device = "lo";     // kTcp: UCX would use several at once
  uint32_t tickets = 1024;               // operations that may be open at a time
};

class UcxFabric : public collective::Fabric {
 public:
  static base::Result<std::unique_ptr<UcxFabric>> create(const UcxOptions& options);
  ~UcxFabric() override;

  // What the peers need to reach this rank.
  virtual std::vector<std::byte> address() const = 0;
  // addresses[r] is that of rank r (the own one is ignored). Builds every link and sends a message over each in
  // both directions, so that what is not reachable is known now. Call once, on all ranks.
  virtual base::Status connect(std::span<const std::vector<std::byte>> addresses,
                               collective::Timeout timeout) = 0;
  // Ends the comm thread and frees UCX. Open operations end with kCancelled. Called by the destructor too.
  virtual void close() = 0;
};

}  // namespace perdure::runtime::transport
