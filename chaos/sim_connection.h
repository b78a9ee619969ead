#pragma once
// SimConnection: both ends of one simulated stream and what is in flight between them. Not for code
// under test, which sees base::Channel.

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "base/network.h"
#include "base/units.h"
#include "base/waiter.h"
#include "chaos/byte_queue.h"
#include "chaos/sim_network.h"

namespace perdure::chaos {

// Shared by the two channels and by its events in the heap: which of them lives longest is not
// known.
class SimConnection : public std::enable_shared_from_this<SimConnection> {
 public:
  struct End {
    SimHost* host = nullptr;
    uint64_t incarnation = 0;
    base::Address address;
    bool is_closed = false;    // by its owner, or with its process
    base::Status broken = {};  // an error once the stream is dead
    base::Waiter<base::Status>* receiving = nullptr;
    base::Waiter<base::Status>* sending = nullptr;
  };

  // The sides are numbered 0 (it connected) and 1 (it accepted).
  SimConnection(SimNetwork& network, const std::array<End, 2>& ends);
  ~SimConnection();

  End& end(int side) { return ends_[side]; }
  base::Status usable(int side) const;

  // Takes as much as the window has room for, gives how much that was.
  size_t push(int side, base::ByteSpan bytes);
  size_t readable_bytes(int side) const { return streams_[1 - side].arrived_bytes; }
  size_t read(int side, base::MutableByteSpan buffer);

  void close(int side);
  void on_host_death(uint32_t host, Crash crash);
  // The end is dead from now on, and knows it.
  void break_end(int side, base::Status status);

 private:
  struct Segment {
    base::Nanos sent;
    base::Nanos arrival;
    base::Nanos backoff;
    size_t size_bytes;  // 0: the end of the stream
  };
  // What one side sends to the other.
  struct Stream {
    ByteQueue bytes;  // in flight, behind those that have arrived and wait to be read
    size_t arrived_bytes = 0;
    bool end_arrived = false;
    bool is_scheduled = false;  // an event will deliver the first segment
    bool is_waiting_for_ack = false;
    std::deque<Segment> in_flight;
  };

  void send_segment(int side, size_t size_bytes);
  void schedule(int side);
  void deliver_first(int side);
  void retry_later(int side);
  void watch_acknowledgement(int side, base::Nanos sent);
  void reset_sender(int side);
  void wake(End& end, base::Waiter<base::Status>* waiter, const base::Status& status);

  SimNetwork& network_;
  const uint64_t number_;
  std::array<End, 2> ends_;
  std::array<Stream, 2> streams_;  // by sender
};

// One end, as its owner sees it.
class SimChannel final : public base::Channel {
 public:
  SimChannel(std::shared_ptr<SimConnection> connection, int side, base::Clock& clock)
      : connection_(std::move(connection)), side_(side), clock_(clock) {}
  ~SimChannel() override { close(); }

  base::Task<base::Status> send(base::ByteSpan bytes, base::Nanos deadline) override;
  base::Task<base::Result<size_t>> receive(base::MutableByteSpan buffer,
                                           base::Nanos deadline) override;
  void close() override { connection_->close(side_); }
  base::Address peer() const override { return connection_->end(1 - side_).address; }

 private:
  std::shared_ptr<SimConnection> connection_;
  const int side_;
  base::Clock& clock_;
};

}  // namespace perdure::chaos
