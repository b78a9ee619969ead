#pragma once
// UcxFabric: messages between worker processes over UCX.
//
//   engine thread                communication thread ("comm")
//   post_* ── commands ────────► hands them to UCX
//   wait   ◄─ condition ──────── completion callbacks
//
// The comm thread runs an Asio loop that sleeps on UCX's event fd and on our own; it never polls:
// with more ranks than cores, a polling rank costs the others milliseconds a message. All UCX calls
// are made there.
//
// Two transports. kTcp: endpoints in peer-error mode, a dead peer ends the operations that wait for
// it with kUnavailable (UCX callback within milliseconds; a receive that was not matched is
// cancelled by us, since UCX does not tie it to a peer). kShm: shared memory, faster, but UCX NEVER
// reports a dead peer there: only deadlines and abort() end a wait. A stopped or cut-off peer shows
// on neither; that is the heartbeat's task.
//
// An abort is final: UCX rests from then on, and a new epoch gets a new fabric, with a port of its
// own: what an aborted one may have left in flight must meet nobody.

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
  uint32_t ranks = 1;  // < 2^16
  base::Epoch epoch;   // in every tag: a message of another epoch matches nothing
  UcxTransport transport = UcxTransport::kTcp;
  std::string network_device = "lo";  // kTcp: UCX would use several at once
  uint32_t tickets = 1024;            // operations that may be open at a time
};

// What of UCX does not depend on an epoch (context, worker, address): it takes 20 to 130 ms to
// make, so it can be made ahead. Any thread; used by one at a time.
class UcxPort;
struct UcxPortOptions {
  UcxTransport transport = UcxTransport::kTcp;
  std::string network_device = "lo";
  friend bool operator==(const UcxPortOptions&, const UcxPortOptions&) = default;
};
base::Result<std::unique_ptr<UcxPort>> make_ucx_port(const UcxPortOptions& options);

base::Result<std::unique_ptr<collective::MeshFabric>> make_ucx_fabric(const UcxOptions& options);

// Makes fabrics from a port that it has made ahead.
//
// Threads: the owner's; the spare is made on a thread of its own. Destroying it waits for that.
class UcxFabricSource {
 public:
  UcxFabricSource();
  ~UcxFabricSource();

  // Begins to make the spare, unless it is there or being made.
  void get_ready(const UcxPortOptions& options);
  // Takes the spare, when it is of the right kind, waiting for it if it is being made; without one,
  // or when making it failed, the same as make_ucx_fabric.
  base::Result<std::unique_ptr<collective::MeshFabric>> make(const UcxOptions& options);

 private:
  struct Spare;
  std::unique_ptr<Spare> spare_;
};

}  // namespace perdure::runtime::transport
