#include "chaos/sim_network.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "base/condition.h"
#include "chaos/sim_connection.h"
#include "chaos/sim_host.h"

namespace perdure::chaos {

using base::Address;
using base::Nanos;
using base::Result;
using base::Status;
using base::Task;

class SimListener final : public base::Listener {
 public:
  SimListener(SimNetwork& network, SimHost& host, Address address)
      : network_(network),
        host_(host),
        incarnation_(host.incarnation()),
        address_(std::move(address)) {
    network_.listeners_.emplace(std::pair(host_.index(), address_.port), this);
  }
  ~SimListener() override { close(); }

  Task<Result<std::unique_ptr<base::Channel>>> accept(Nanos deadline) override {
    while (!is_closed_ && arrived_.empty()) {
      CO_RETURN_IF_ERROR(co_await changed_.wait(host_.clock(), deadline));
    }
    if (is_closed_) co_return base::cancelled("the listener is closed");
    std::unique_ptr<base::Channel> channel = std::move(arrived_.front());
    arrived_.pop_front();
    co_return channel;
  }

  Address address() const override { return address_; }

  void close() override {
    if (std::exchange(is_closed_, true)) return;
    arrived_.clear();
    changed_.notify_all();
    if (host_.is_alive() && host_.incarnation() == incarnation_) {
      network_.listeners_.erase({host_.index(), address_.port});
      host_.mark_ready();
    }
  }

  // False when too many wait already.
  bool offer(std::unique_ptr<base::Channel> channel) {
    constexpr size_t kBacklogMax = 128;
    if (arrived_.size() >= kBacklogMax) return false;
    arrived_.push_back(std::move(channel));
    changed_.notify_one();
    host_.mark_ready();
    return true;
  }

 private:
  SimNetwork& network_;
  SimHost& host_;
  const uint64_t incarnation_;
  const Address address_;
  bool is_closed_ = false;
  std::deque<std::unique_ptr<base::Channel>> arrived_;
  base::Condition changed_;
};

// A connect() under way. Owned by its coroutine; events look whether it still exists.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  ConnectAttempt(SimNetwork& network, SimHost& from, SimHost& to, Address address)
      : network_(network),
        from_(from),
        to_(to),
        address_(std::move(address)),
        begun_(network.now_) {}

  void ask(Nanos backoff) {
    const Nanos when = network_.draw_arrival(from_.index(), to_.index(), 0) + backoff;
    network_.call_at(when, [weak = weak_from_this(), backoff] {
      if (const auto self = weak.lock()) self->on_asked(backoff);
    });
  }

  base::Waiter<Status> answered;
  std::shared_ptr<SimConnection> connection;

 private:
  void on_asked(Nanos backoff) {
    const LinkOptions& options = network_.options(from_.index(), to_.index());
    const bool is_heard = network_.is_reachable(from_.index(), to_.index());
    const auto listener = network_.listeners_.find({to_.index(), address_.port});
    if (is_heard && listener == network_.listeners_.end()) {
      return answer(base::unavailable(address_.to_string() + " refuses: nobody listens there"));
    }
    if (is_heard && try_accept(*listener->second)) return answer(Status::ok());
    if (network_.now_ - begun_ >= options.break_after) {
      answered.complete(base::unavailable(address_.to_string() + " does not answer"));
      return from_.mark_ready();
    }
    ask(backoff + std::max(backoff, options.retransmit_after));
  }

  bool try_accept(SimListener& listener) {
    const Address from_address = {from_.name(), ++network_.port_last_};
    connection = std::make_shared<SimConnection>(
        network_,
        std::array<SimConnection::End, 2>{
            SimConnection::End{
                .host = &from_, .incarnation = from_.incarnation(), .address = from_address},
            SimConnection::End{
                .host = &to_, .incarnation = to_.incarnation(), .address = address_}});
    return listener.offer(std::make_unique<SimChannel>(connection, 1, to_.clock()));
  }

  // The answer travels back. On a cut link it does not arrive, and the caller's deadline ends the
  // wait.
  void answer(Status status) {
    const Nanos when = network_.draw_arrival(to_.index(), from_.index(), 0);
    network_.call_at(when, [weak = weak_from_this(), status = std::move(status)] {
      const auto self = weak.lock();
      if (!self || !self->network_.is_reachable(self->to_.index(), self->from_.index())) return;
      self->answered.complete(status);
      self->from_.mark_ready();
    });
  }

  SimNetwork& network_;
  SimHost& from_;
  SimHost& to_;
  const Address address_;
  const Nanos begun_;
};

class SimPort final : public base::Network {
 public:
  SimPort(SimNetwork& network, SimHost& host) : network_(network), host_(host) {}

  Result<std::unique_ptr<base::Listener>> listen(const Address& address) override {
    if (!host_.is_alive()) return base::unavailable(host_.name() + " is dead");
    if (!address.host.empty() && address.host != host_.name()) {
      return base::invalid_argument("listen on " + address.to_string() + ": this host is " +
                                    host_.name());
    }
    Address chosen = {host_.name(), address.port};
    while (chosen.port == 0 || (address.port == 0 && is_taken(chosen.port))) {
      chosen.port = ++network_.port_last_;
    }
    if (is_taken(chosen.port)) {
      return base::already_exists("listen on " + chosen.to_string() + ": the port is taken");
    }
    return std::unique_ptr<base::Listener>(
        std::make_unique<SimListener>(network_, host_, std::move(chosen)));
  }

  Task<Result<std::unique_ptr<base::Channel>>> connect(Address address, Nanos deadline) override {
    if (!host_.is_alive()) co_return base::unavailable(host_.name() + " is dead");
    SimHost* to = network_.find_host(address.host);
    if (to == nullptr) co_return base::not_found("no host is called '" + address.host + "'");
    const auto attempt = std::make_shared<ConnectAttempt>(network_, host_, *to, address);
    attempt->ask(Nanos(0));
    const Status status =
        co_await base::wait_until(attempt->answered, host_.clock(), deadline, "connection");
    if (!status.is_ok()) {
      // The other side may have accepted: it learns that nobody is here.
      if (attempt->connection != nullptr) attempt->connection->close(0);
      co_return status.annotate("connect to " + address.to_string());
    }
    co_return std::unique_ptr<base::Channel>(
        std::make_unique<SimChannel>(attempt->connection, 0, host_.clock()));
  }

 private:
  bool is_taken(uint16_t port) const { return network_.listeners_.contains({host_.index(), port}); }

  SimNetwork& network_;
  SimHost& host_;
};

SimNetwork::SimNetwork(EventHeap& heap, const Nanos& now, base::Trace& trace,
                       const LinkOptions& default_link, const base::SeededRandom& random)
    : heap_(heap), now_(now), trace_(trace), default_link_(default_link), random_(random) {}

void SimNetwork::set_link(const HostPair& pair, const LinkOptions& options) {
  special_links_[way(index_of(pair.from), index_of(pair.to))] = options;
}

void SimNetwork::set_cut(uint32_t from, uint32_t to, bool is_cut) {
  std::vector<bool>& row = cuts_[from];
  if (row.size() <= to) row.resize(hosts_.size());
  row[to] = is_cut;
}

void SimNetwork::cut(const HostPair& pair) {
  const uint32_t from = index_of(pair.from);
  const uint32_t to = index_of(pair.to);
  trace_.record(now_, "cut", {from, to});
  set_cut(from, to, true);
}

void SimNetwork::heal(const HostPair& pair) {
  const uint32_t from = index_of(pair.from);
  const uint32_t to = index_of(pair.to);
  trace_.record(now_, "heal", {from, to});
  set_cut(from, to, false);
}

void SimNetwork::partition(const std::vector<std::string>& group) {
  std::vector<bool> is_inside(hosts_.size());
  for (const std::string& name : group) is_inside[index_of(name)] = true;
  for (uint32_t from = 0; from < hosts_.size(); ++from) {
    for (uint32_t to = 0; to < hosts_.size(); ++to) {
      if (is_inside[from] == is_inside[to]) continue;
      trace_.record(now_, "cut", {from, to});
      set_cut(from, to, true);
    }
  }
}

void SimNetwork::heal_all() {
  trace_.record(now_, "heal all", {});
  for (std::vector<bool>& row : cuts_) row.clear();
}

std::unique_ptr<base::Network> SimNetwork::make_port(SimHost& host) {
  CHECK_EQ(host.index(), hosts_.size());
  CHECK(by_name_.emplace(host.name(), &host).second) << "two hosts are called " << host.name();
  hosts_.push_back(&host);
  connections_.emplace_back();
  is_powered_.push_back(true);
  cuts_.emplace_back();
  return std::make_unique<SimPort>(*this, host);
}

void SimNetwork::on_host_start(SimHost& host) { is_powered_[host.index()] = true; }

void SimNetwork::on_host_death(SimHost& host, Crash crash) {
  if (crash == Crash::kPower) is_powered_[host.index()] = false;
  const auto first = listeners_.lower_bound({host.index(), 0});
  const auto last = listeners_.upper_bound({host.index(), 0xFFFF});
  listeners_.erase(first, last);
  for (const auto& [number, connection] : connections_[host.index()]) {
    connection->on_host_death(host.index(), crash);
  }
}

uint32_t SimNetwork::index_of(std::string_view name) const {
  const SimHost* host = find_host(name);
  CHECK(host != nullptr) << "no host is called " << name;
  return host->index();
}

SimHost* SimNetwork::find_host(std::string_view name) const {
  const auto found = by_name_.find(std::string(name));
  return found == by_name_.end() ? nullptr : found->second;
}

bool SimNetwork::is_reachable(uint32_t from, uint32_t to) {
  return is_powered_[to] && (from == to || !is_cut(from, to));
}

Nanos SimNetwork::draw_arrival(uint32_t from, uint32_t to, size_t size_bytes) {
  const LinkOptions& link = options(from, to);
  ++stats_.segments_sent;
  Nanos leaves = now_;
  if (link.bytes_per_second > 0) {
    const double seconds =
        static_cast<double>(size_bytes) / static_cast<double>(link.bytes_per_second);
    Nanos& busy_until = busy_until_[way(from, to)];
    leaves = std::max(now_, busy_until) + base::from_seconds(seconds);
    busy_until = leaves;
  }
  Nanos arrival = leaves + link.delay;
  if (link.jitter_mean.count() > 0) {
    arrival += Nanos(
        static_cast<int64_t>(random_.exponential(static_cast<double>(link.jitter_mean.count()))));
  }
  if (link.loss > 0) {
    constexpr int kResendsMax = 6;
    for (int resend = 0; resend < kResendsMax && random_.bernoulli(link.loss); ++resend) {
      ++stats_.segments_lost;
      arrival += link.retransmit_after * (1 << resend);
    }
  }
  if (link.reorder > 0 && random_.bernoulli(link.reorder)) arrival += link.reorder_delay;
  if (link.duplicate > 0 && random_.bernoulli(link.duplicate)) {
    // The copy comes later, and the receiver knows its sequence number already.
    call_at(arrival + link.delay, [this, from, to] {
      ++stats_.duplicates_dropped;
      trace_.record(now_, "duplicate", {from, to});
    });
  }
  return arrival;
}

}  // namespace perdure::chaos
