#pragma once
// Seam: byte streams between hosts. Real programs use runtime/transport_tcp, simulated ones chaos'
// SimNetwork. Message borders, checksums and epochs are the business of the layer above
// (runtime/rpc).
//
//        connect ──────────► accept
//        Channel ═══ bytes in order, both ways ═══ Channel
//
// All objects belong to one component: its thread only. They outlive the calls that are in flight
// on them. Every wait has a deadline on the component's Clock. Error codes, for every call:
//   kDeadlineExceeded   nothing happened in time
//   kCancelled          close() was called on this object, also while the call waited
//   kUnavailable        the peer is gone, refuses, or cannot be reached

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "base/task.h"
#include "base/units.h"

namespace perdure::base {

// A host (name or number; "" to listen on all interfaces) and a port (0 to listen on any free one).
// It has constructors because g++ 12 destroys an aggregate twice that is made inside a co_await
// expression.
struct Address {
  Address() = default;
  Address(std::string h, uint16_t p) : host(std::move(h)), port(p) {}

  // "host:port"; kInvalidArgument when it is not.
  static Result<Address> parse(std::string_view text);
  std::string to_string() const;
  friend auto operator<=>(const Address&, const Address&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Address& a) {
    return out << a.to_string();
  }

  std::string host;
  uint16_t port = 0;
};

// One end of a connection. One send and one receive may be in flight at the same time, not two of a
// kind.
class Channel {
 public:
  virtual ~Channel() = default;

  // Ok when all of `bytes` are on their way: this is no proof that they arrive. Suspends while the
  // peer does not read fast enough. After an error the stream is broken at an unknown byte: close
  // it. `bytes` stays valid and unchanged until the call returns.
  virtual Task<Status> send(ByteSpan bytes, Nanos deadline) = 0;

  // Waits for at least one byte and gives how many it put into `buffer` (which is not empty). Bytes
  // that arrived before the peer closed are received first; then it is kUnavailable. After
  // kDeadlineExceeded nothing is lost: it may be called again.
  virtual Task<Result<size_t>> receive(MutableByteSpan buffer, Nanos deadline) = 0;

  // Ends both directions; bytes already accepted by send() are still delivered if the peer can be
  // reached. Calls in flight and later ones give kCancelled. May be called twice; the destructor
  // calls it.
  virtual void close() = 0;

  virtual Address peer() const = 0;
};

class Listener {
 public:
  virtual ~Listener() = default;

  // The next connection. A connection that failed before it was accepted is skipped.
  virtual Task<Result<std::unique_ptr<Channel>>> accept(Nanos deadline) = 0;

  // Where it listens, with the port that was chosen.
  virtual Address address() const = 0;

  // Refuses new connections; accepted ones live on. The destructor calls it.
  virtual void close() = 0;
};

class Network {
 public:
  virtual ~Network() = default;

  // kAlreadyExists when the port is taken, kInvalidArgument for a host that is not this one.
  virtual Result<std::unique_ptr<Listener>> listen(const Address& address) = 0;

  // kUnavailable when nobody listens there, kNotFound when the name is unknown.
  virtual Task<Result<std::unique_ptr<Channel>>> connect(Address address, Nanos deadline) = 0;
};

// Fills all of `buffer`, or fails; kDataLoss when the peer closed after some but not all bytes.
Task<Status> receive_all(Channel& channel, MutableByteSpan buffer, Nanos deadline);

}  // namespace perdure::base
