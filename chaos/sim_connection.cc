#include "chaos/sim_connection.h"

#include <algorithm>
#include <utility>

#include "base/condition.h"
#include "base/hash.h"
#include "chaos/sim_host.h"

namespace perdure::chaos {
namespace {

using base::ByteSpan;
using base::MutableByteSpan;
using base::Nanos;
using base::Result;
using base::Status;
using base::Task;
using base::Waiter;

constexpr Nanos kBackoffMax{5'000'000'000};

// Shows a waiter to the connection as long as it lives.
class ShownWaiter {
 public:
  ShownWaiter(Waiter<Status>*& place, Waiter<Status>& waiter) : place_(place) {
    CHECK(place_ == nullptr) << "two calls of one kind on one channel";
    place_ = &waiter;
  }
  ~ShownWaiter() { place_ = nullptr; }
  ShownWaiter(const ShownWaiter&) = delete;
  ShownWaiter& operator=(const ShownWaiter&) = delete;

 private:
  Waiter<Status>*& place_;
};

}  // namespace

SimConnection::SimConnection(SimNetwork& network, const std::array<End, 2>& ends)
    : network_(network), number_(++network.connection_last_), ends_(ends) {
  for (const End& end : ends_) network_.connections_[end.host->index()].emplace(number_, this);
  ++network_.stats_.connections_made;
}

SimConnection::~SimConnection() {
  for (const End& end : ends_) network_.connections_[end.host->index()].erase(number_);
}

Status SimConnection::usable(int side) const {
  if (ends_[side].is_closed) return base::cancelled("the channel is closed");
  return ends_[side].broken;
}

size_t SimConnection::push(int side, ByteSpan bytes) {
  Stream& stream = streams_[side];
  const size_t window_bytes =
      network_.options(ends_[side].host->index(), ends_[1 - side].host->index()).window_bytes;
  const size_t room_bytes = window_bytes - std::min(window_bytes, stream.bytes.size());
  const size_t size_bytes = std::min(room_bytes, bytes.size());
  if (size_bytes == 0) return 0;
  stream.bytes.push(bytes.first(size_bytes));
  send_segment(side, size_bytes);
  return size_bytes;
}

size_t SimConnection::read(int side, MutableByteSpan buffer) {
  Stream& stream = streams_[1 - side];
  const size_t size_bytes = std::min(stream.arrived_bytes, buffer.size());
  stream.bytes.pop(buffer.first(size_bytes));
  stream.arrived_bytes -= size_bytes;
  End& sender = ends_[1 - side];
  wake(sender, sender.sending, Status::ok());
  return size_bytes;
}

void SimConnection::close(int side) {
  End& end = ends_[side];
  if (std::exchange(end.is_closed, true)) return;
  wake(end, end.receiving, base::cancelled("the channel is closed"));
  wake(end, end.sending, base::cancelled("the channel is closed"));
  if (end.broken.is_ok()) send_segment(side, 0);
}

void SimConnection::on_host_death(uint32_t host, Crash crash) {
  for (const int side : {0, 1}) {
    End& end = ends_[side];
    if (end.host->index() != host || std::exchange(end.is_closed, true)) continue;
    if (crash == Crash::kPower) {
      streams_[side].in_flight.clear();
    } else if (end.broken.is_ok()) {
      send_segment(side, 0);  // the kernel closes what the process had open
    }
  }
}

void SimConnection::break_end(int side, Status status) {
  End& end = ends_[side];
  streams_[side].in_flight.clear();
  if (!end.broken.is_ok()) return;
  ++network_.stats_.connections_broken;
  network_.trace_.record(network_.now_, "broken", {number_, static_cast<uint64_t>(side)});
  end.broken = std::move(status);
  wake(end, end.receiving, end.broken);
  wake(end, end.sending, end.broken);
}

void SimConnection::wake(End& end, Waiter<Status>* waiter, const Status& status) {
  if (waiter == nullptr || end.incarnation != end.host->incarnation()) return;
  waiter->complete(status);
  end.host->mark_ready();
}

void SimConnection::send_segment(int side, size_t size_bytes) {
  const uint32_t from = ends_[side].host->index();
  const uint32_t to = ends_[1 - side].host->index();
  Stream& stream = streams_[side];
  Nanos arrival = network_.draw_arrival(from, to, size_bytes);
  // A segment that overtakes waits at the receiver for the one before it.
  if (!stream.in_flight.empty()) arrival = std::max(arrival, stream.in_flight.back().arrival);
  stream.in_flight.push_back({network_.now_, arrival, Nanos(0), size_bytes});
  schedule(side);
}

void SimConnection::schedule(int side) {
  Stream& stream = streams_[side];
  if (stream.is_scheduled || stream.in_flight.empty()) return;
  stream.is_scheduled = true;
  network_.call_at(std::max(network_.now_, stream.in_flight.front().arrival),
                   [self = shared_from_this(), side] { self->deliver_first(side); });
}

void SimConnection::deliver_first(int side) {
  Stream& stream = streams_[side];
  stream.is_scheduled = false;
  if (stream.in_flight.empty()) return;
  End& to = ends_[1 - side];
  if (!network_.is_reachable(ends_[side].host->index(), to.host->index())) return retry_later(side);

  const Segment segment = stream.in_flight.front();
  const bool is_gone =
      to.is_closed || !to.broken.is_ok() || to.incarnation != to.host->incarnation();
  if (is_gone) {
    stream.in_flight.clear();
    if (segment.size_bytes > 0) reset_sender(side);
    return;
  }
  stream.in_flight.pop_front();
  ++network_.stats_.segments_delivered;
  const ByteSpan payload = stream.bytes.view().subspan(stream.arrived_bytes, segment.size_bytes);
  network_.trace_.record(
      network_.now_, "deliver",
      {number_, static_cast<uint64_t>(side), payload.size(), base::hash64(payload)});
  stream.arrived_bytes += segment.size_bytes;
  stream.end_arrived |= segment.size_bytes == 0;
  if (stream.end_arrived && to.broken.is_ok()) {
    to.broken = base::unavailable(ends_[side].address.to_string() + " closed the connection");
  }
  wake(to, to.receiving, Status::ok());
  if (stream.end_arrived) wake(to, to.sending, to.broken);
  if (!network_.is_reachable(to.host->index(), ends_[side].host->index())) {
    watch_acknowledgement(side, segment.sent);
  }
  schedule(side);
}

void SimConnection::retry_later(int side) {
  Segment& segment = streams_[side].in_flight.front();
  const LinkOptions& options =
      network_.options(ends_[side].host->index(), ends_[1 - side].host->index());
  if (network_.now_ - segment.sent >= options.break_after) {
    return break_end(side, base::unavailable(ends_[1 - side].address.to_string() +
                                             " acknowledges nothing any more"));
  }
  segment.backoff =
      std::min(segment.backoff + std::max(segment.backoff, options.retransmit_after), kBackoffMax);
  segment.arrival = network_.now_ + segment.backoff;
  schedule(side);
}

// The bytes arrived, but the way back is cut: to the sender it looks as if they had not.
void SimConnection::watch_acknowledgement(int side, Nanos sent) {
  if (std::exchange(streams_[side].is_waiting_for_ack, true)) return;
  const uint32_t back_from = ends_[1 - side].host->index();
  const uint32_t back_to = ends_[side].host->index();
  const Nanos when = sent + network_.options(back_to, back_from).break_after;
  network_.call_at(when, [self = shared_from_this(), side, back_from, back_to] {
    self->streams_[side].is_waiting_for_ack = false;
    if (self->network_.is_reachable(back_from, back_to)) return;
    self->break_end(side, base::unavailable("no acknowledgement from " +
                                            self->ends_[1 - side].address.to_string()));
  });
}

// The receiver's kernel does not know the stream (any more) and says so.
void SimConnection::reset_sender(int side) {
  const uint32_t back_from = ends_[1 - side].host->index();
  const uint32_t back_to = ends_[side].host->index();
  network_.call_at(network_.draw_arrival(back_from, back_to, 0), [self = shared_from_this(), side,
                                                                  back_from, back_to] {
    if (!self->network_.is_reachable(back_from, back_to)) return;
    self->break_end(side, base::unavailable(self->ends_[1 - side].address.to_string() +
                                            " reset the connection"));
  });
}

Task<Status> SimChannel::send(ByteSpan bytes, Nanos deadline) {
  while (true) {
    CO_RETURN_IF_ERROR(connection_->usable(side_));
    bytes = bytes.subspan(connection_->push(side_, bytes));
    if (bytes.empty()) co_return Status::ok();
    Waiter<Status> waiter;
    const ShownWaiter shown(connection_->end(side_).sending, waiter);
    CO_RETURN_IF_ERROR(co_await base::wait_until(waiter, clock_, deadline, "room in the stream"));
  }
}

Task<Result<size_t>> SimChannel::receive(MutableByteSpan buffer, Nanos deadline) {
  CHECK(!buffer.empty());
  while (true) {
    const SimConnection::End& end = connection_->end(side_);
    if (end.is_closed) co_return connection_->usable(side_);
    if (connection_->readable_bytes(side_) > 0) co_return connection_->read(side_, buffer);
    CO_RETURN_IF_ERROR(end.broken);
    Waiter<Status> waiter;
    const ShownWaiter shown(connection_->end(side_).receiving, waiter);
    const Status status = co_await base::wait_until(waiter, clock_, deadline, "bytes");
    // A broken stream still gives what had arrived before.
    if (status.code() != base::StatusCode::kUnavailable) CO_RETURN_IF_ERROR(status);
  }
}

}  // namespace perdure::chaos
