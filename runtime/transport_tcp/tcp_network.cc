#include "runtime/transport_tcp/tcp_network.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <utility>

#include "base/log.h"

namespace perdure::runtime::transport_tcp {
namespace {

using base::Address;
using base::Clock;
using base::Nanos;
using base::Result;
using base::Status;
using base::StatusCode;
using base::Task;
using boost::asio::ip::tcp;
using ErrorCode = boost::system::error_code;

StatusCode code_of(const ErrorCode& error) {
  namespace errc = boost::system::errc;
  if (error == boost::asio::error::operation_aborted) return StatusCode::kCancelled;
  if (error == boost::asio::error::host_not_found) return StatusCode::kNotFound;
  if (error == errc::address_in_use) return StatusCode::kAlreadyExists;
  if (error == errc::address_not_available) return StatusCode::kInvalidArgument;
  if (error == errc::too_many_files_open || error == errc::too_many_files_open_in_system ||
      error == errc::no_buffer_space || error == errc::not_enough_memory) {
    return StatusCode::kResourceExhausted;
  }
  if (error == errc::permission_denied) return StatusCode::kFailedPrecondition;
  return StatusCode::kUnavailable;  // refused, reset, unreachable, timed out, end of stream
}

Status to_status(const ErrorCode& error, std::string_view action, const Address& address) {
  return Status(code_of(error),
                std::string(action) + " " + address.to_string() + ": " + error.message());
}

Address to_address(const tcp::endpoint& endpoint) {
  return {.host = endpoint.address().to_string(), .port = endpoint.port()};
}

// Cancels one Asio operation at a deadline. `is_late` tells a deadline from a close.
class DeadlineGuard {
 public:
  DeadlineGuard(Clock& clock, Nanos deadline)
      : timer_(clock, deadline, [this] {
          is_late_ = true;
          signal_.emit(boost::asio::cancellation_type::total);
        }) {}

  auto token() {
    return boost::asio::bind_cancellation_slot(signal_.slot(),
                                               boost::asio::as_tuple(boost::asio::use_awaitable));
  }
  bool is_late() const { return is_late_; }

 private:
  boost::asio::cancellation_signal signal_;
  bool is_late_ = false;
  base::Timer timer_;
};

Status outcome(const ErrorCode& error, const DeadlineGuard& guard, std::string_view action,
               const Address& address) {
  if (!error) return Status::ok();
  if (error == boost::asio::error::operation_aborted && guard.is_late()) {
    return base::deadline_exceeded(std::string(action) + " " + address.to_string() +
                                   ": the deadline has passed");
  }
  return to_status(error, action, address);
}

class TcpChannel final : public base::Channel {
 public:
  TcpChannel(tcp::socket socket, Clock& clock, const Address& peer)
      : socket_(std::move(socket)), clock_(clock), peer_(peer) {}
  ~TcpChannel() override { close(); }

  Task<Status> send(base::ByteSpan bytes, Nanos deadline) override {
    CHECK(!std::exchange(is_sending_, true)) << "two sends on one channel";
    Status status;
    DeadlineGuard guard(clock_, deadline);
    while (status.is_ok() && !bytes.empty()) {
      const auto [error, sent_bytes] = co_await socket_.async_write_some(
          boost::asio::const_buffer(bytes.data(), bytes.size()), guard.token());
      bytes = bytes.subspan(sent_bytes);
      // A deadline between two writes has no operation to cancel.
      status = guard.is_late() && !bytes.empty()
                   ? outcome(boost::asio::error::operation_aborted, guard, "send to", peer_)
                   : outcome(error, guard, "send to", peer_);
    }
    is_sending_ = false;
    co_return is_closed_ ? base::cancelled("the channel is closed") : status;
  }

  Task<Result<size_t>> receive(base::MutableByteSpan buffer, Nanos deadline) override {
    CHECK(!buffer.empty());
    if (is_closed_) co_return base::cancelled("the channel is closed");
    CO_RETURN_IF_ERROR(ended_);
    CHECK(!std::exchange(is_receiving_, true)) << "two receives on one channel";
    DeadlineGuard guard(clock_, deadline);
    const auto [error, received_bytes] = co_await socket_.async_read_some(
        boost::asio::mutable_buffer(buffer.data(), buffer.size()), guard.token());
    is_receiving_ = false;
    if (is_closed_) co_return base::cancelled("the channel is closed");
    if (!error) co_return received_bytes;
    const Status status = outcome(error, guard, "receive from", peer_);
    if (status.code() != StatusCode::kDeadlineExceeded) ended_ = status;
    co_return status;
  }

  void close() override {
    if (std::exchange(is_closed_, true)) return;
    ErrorCode error;
    socket_.close(error);
    if (error) LOG_WARNING("tcp", "close failed", KV("peer", peer_), KV("error", error.message()));
  }

  Address peer() const override { return peer_; }

 private:
  tcp::socket socket_;
  Clock& clock_;
  const Address peer_;
  // Why nothing will be received any more: a second read after the end of the stream would wait for
  // ever.
  Status ended_;
  bool is_closed_ = false;
  bool is_sending_ = false;
  bool is_receiving_ = false;
};

// Small messages leave at once, and a silent peer is found in bounded time.
void tune(tcp::socket& socket, const TcpOptions& options) {
  ErrorCode ignored;  // without these the stream works, only slower to notice trouble
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const auto ms = static_cast<unsigned>(base::to_ms(options.unacknowledged_max));
  (void)setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

class TcpListener final : public base::Listener {
 public:
  TcpListener(tcp::acceptor acceptor, Clock& clock, const TcpOptions& options)
      : acceptor_(std::move(acceptor)),
        clock_(clock),
        options_(options),
        address_(to_address(acceptor_.local_endpoint())) {}
  ~TcpListener() override { close(); }

  Task<Result<std::unique_ptr<base::Channel>>> accept(Nanos deadline) override {
    DeadlineGuard guard(clock_, deadline);
    while (true) {
      auto [error, socket] = co_await acceptor_.async_accept(guard.token());
      if (is_closed_) co_return base::cancelled("the listener is closed");
      if (error == boost::asio::error::connection_aborted) continue;
      if (error) co_return outcome(error, guard, "accept on", address_);
      ErrorCode gone;
      const tcp::endpoint peer = socket.remote_endpoint(gone);
      if (gone) continue;
      tune(socket, options_);
      co_return std::unique_ptr<base::Channel>(
          std::make_unique<TcpChannel>(std::move(socket), clock_, to_address(peer)));
    }
  }

  Address address() const override { return address_; }

  void close() override {
    if (std::exchange(is_closed_, true)) return;
    ErrorCode ignored;
    acceptor_.close(ignored);
  }

 private:
  tcp::acceptor acceptor_;
  Clock& clock_;
  const TcpOptions options_;
  const Address address_;
  bool is_closed_ = false;
};

}  // namespace

TcpNetwork::TcpNetwork(base::Executor executor, Clock& clock, const TcpOptions& options)
    : executor_(std::move(executor)), clock_(clock), options_(options) {}

Result<std::unique_ptr<base::Listener>> TcpNetwork::listen(const Address& address) {
  ErrorCode error;
  const auto ip = address.host.empty() ? boost::asio::ip::make_address("0.0.0.0")
                                       : boost::asio::ip::make_address(address.host, error);
  if (error) {
    return base::invalid_argument("listen on " + address.to_string() +
                                  ": give the number of an interface of this host, or no host");
  }
  const tcp::endpoint endpoint(ip, address.port);
  tcp::acceptor acceptor(executor_);
  acceptor.open(endpoint.protocol(), error);
  // A restarted coordinator takes its port back although old connections linger in TIME_WAIT.
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(options_.backlog, error);
  if (error) return to_status(error, "listen on", address);
  return std::unique_ptr<base::Listener>(
      std::make_unique<TcpListener>(std::move(acceptor), clock_, options_));
}

Task<Result<std::unique_ptr<base::Channel>>> TcpNetwork::connect(Address address, Nanos deadline) {
  DeadlineGuard guard(clock_, deadline);
  ErrorCode not_a_number;
  const auto ip = boost::asio::ip::make_address(address.host, not_a_number);
  std::vector<tcp::endpoint> endpoints = {tcp::endpoint(ip, address.port)};
  if (not_a_number) {
    tcp::resolver resolver(executor_);
    const auto [error, found] =
        co_await resolver.async_resolve(address.host, std::to_string(address.port), guard.token());
    if (error) co_return outcome(error, guard, "resolve", address);
    endpoints.assign(found.begin(), found.end());
  }
  Status status = base::unavailable("connect to " + address.to_string() + ": no address");
  for (const tcp::endpoint& endpoint : endpoints) {
    tcp::socket socket(executor_);
    const auto [error] = co_await socket.async_connect(endpoint, guard.token());
    status = outcome(error, guard, "connect to", address);
    if (guard.is_late()) {
      co_return base::deadline_exceeded("connect to " + address.to_string() +
                                        ": the deadline has passed");
    }
    if (!status.is_ok()) continue;
    tune(socket, options_);
    co_return std::unique_ptr<base::Channel>(
        std::make_unique<TcpChannel>(std::move(socket), clock_, address));
  }
  co_return status;
}

}  // namespace perdure::runtime::transport_tcp
