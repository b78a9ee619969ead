#include "base/posix_clock.h"

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

namespace perdure::base {

struct PosixClock::Pending {
  boost::asio::steady_timer timer;
  UniqueFunction<void()> callback;
};

PosixClock::PosixClock() = default;
PosixClock::PosixClock(Executor executor) : executor_(std::move(executor)) {}
PosixClock::~PosixClock() = default;

Nanos PosixClock::now() const { return std::chrono::steady_clock::now().time_since_epoch(); }

int64_t PosixClock::unix_ms() const {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch).count();
}

TimerId PosixClock::call_at(Nanos when, UniqueFunction<void()> callback) {
  CHECK(executor_) << "this clock has no executor";
  if (when == kNoDeadline) return TimerId::kNone;
  const uint64_t id = ++id_last_;
  auto pending = std::make_unique<Pending>(
      Pending{boost::asio::steady_timer(executor_, std::chrono::steady_clock::time_point(when)),
              std::move(callback)});
  pending->timer.async_wait([this, id](const boost::system::error_code& error) {
    if (!error) fire(id);
  });
  pending_.emplace(id, std::move(pending));
  return static_cast<TimerId>(id);
}

void PosixClock::cancel(TimerId id) {
  const auto found = pending_.find(static_cast<uint64_t>(id));
  if (found == pending_.end()) return;
  // Moved out first: destroying the callback may destroy a coroutine that cancels other timers.
  const std::unique_ptr<Pending> cancelled = std::move(found->second);
  pending_.erase(found);
}

void PosixClock::fire(uint64_t id) {
  const auto found = pending_.find(id);
  if (found == pending_.end()) return;  // cancelled after it was queued
  UniqueFunction<void()> callback = std::move(found->second->callback);
  pending_.erase(found);
  callback();
}

}  // namespace perdure::base
