#pragma once
// Fabric: the seam between collectives and what carries bytes. It moves messages between the ranks
// of one epoch; everything bigger (all-reduce, pipelines) is built from posts and waits.
//
// Implementations: LocalFabric (ranks as threads, for tests), UcxFabric (runtime/transport). One
// conformance test runs over all of them.
//
// Threads: one thread per rank posts and waits; abort() may be called by any thread.
// Order: messages with one sender, receiver and tag arrive in the order in which they were posted.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace perdure::runtime::collective {

// What a message is for. The sender is part of the match, so two ranks never collide.
enum class Channel : uint8_t { kActivation, kGradient, kReduce, kReduceMax, kVote, kTest, kState };

struct Tag {
  Channel channel = Channel::kTest;
  uint32_t step = 0;   // of the job, low bits are enough: tells a late message from a new one
  uint32_t index = 0;  // micro-batch, bucket or round; < 2^20
};

// Names one posted operation until wait() has returned its result.
struct Ticket {
  uint32_t slot = 0;
  uint32_t generation = 0;
};

using Timeout = std::chrono::milliseconds;

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual base::Rank rank() const = 0;
  virtual uint32_t ranks() const = 0;

  // Start to move bytes. The memory belongs to the fabric until wait() returned for this ticket, or
  // until abort() AND a wait() that returned its error. Sending to oneself is a bug. Never blocks,
  // never fails: what goes wrong is told by wait().
  virtual Ticket post_send(base::Rank to, Tag tag, std::span<const std::byte> bytes) = 0;
  virtual Ticket post_receive(base::Rank from, Tag tag, std::span<std::byte> bytes) = 0;

  // Waits until the operation is done. A send is done when its memory may be used again, which does
  // not mean that the peer has it. kDeadlineExceeded: not done in time, and the fabric is aborted,
  // because a message of unknown state cannot be taken back. kUnavailable: the peer is gone.
  // kDataLoss: a message of another length than expected. Otherwise what abort() was given.
  virtual base::Status wait(Ticket ticket, Timeout timeout) = 0;

  // Ends every operation in flight, in bounded time, with `why`; later ones end with it at once.
  // The first reason stays. Used to leave a collective when a peer is lost or the epoch has
  // changed.
  virtual void abort(base::Status why) = 0;
};

// A fabric between processes. Life: make it, exchange address() by other means, connect, use, close
// (or destroy).
class MeshFabric : public Fabric {
 public:
  // What the peers need to reach this rank.
  virtual std::vector<std::byte> address() const = 0;
  // addresses[r] is that of rank r (the own one is ignored); empty: no link is wanted, on neither
  // side, and messages to it fail with kUnavailable. Builds every link and sends a message over
  // each in both directions, so that what is not reachable is known now. Call once, on all ranks.
  virtual base::Status connect(std::span<const std::vector<std::byte>> addresses,
                               Timeout timeout) = 0;
  // Frees what lies below. Open operations end with kCancelled. Called by the destructor too.
  virtual void close() = 0;
};

}  // namespace perdure::runtime::collective
