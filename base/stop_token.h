#pragma once
// A request to stop, and a deadline, passed down the calls of one piece of work.
//
//   StopSource stop;                                    // of the component
//   co_await step(stop.token().with_deadline(t));       // of one call
//   CO_RETURN_IF_ERROR(token.check(clock));             // after each wait

#include <atomic>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_function.h"
#include "base/units.h"

namespace perdure::base {

class StopCallback;
class StopToken;

// stop_requested() may be asked by any thread; all else belongs to the component's thread. Outlives
// its tokens and callbacks.
class StopSource {
 public:
  StopSource() = default;
  StopSource(const StopSource&) = delete;
  StopSource& operator=(const StopSource&) = delete;
  ~StopSource();

  // Runs the registered callbacks, oldest first. The second call does nothing.
  void request_stop();
  bool stop_requested() const { return requested_.load(std::memory_order_acquire); }
  StopToken token();

 private:
  friend class StopCallback;
  std::atomic<bool> requested_ = false;
  StopCallback* first_ = nullptr;
  StopCallback* last_ = nullptr;
};

// Copied freely. The default one never stops.
class StopToken {
 public:
  StopToken() = default;

  // The earlier of both deadlines counts.
  StopToken with_deadline(Nanos deadline) const;

  bool stop_requested() const { return source_ != nullptr && source_->stop_requested(); }
  Nanos deadline() const { return deadline_; }

  // kCancelled when a stop was requested, kDeadlineExceeded when the deadline has passed.
  Status check(const Clock& clock) const;

 private:
  friend class StopSource;
  friend class StopCallback;
  StopSource* source_ = nullptr;
  Nanos deadline_ = kNoDeadline;
};

// Calls `callback` once when a stop is requested, at once if it has been already. Not called after
// destruction.
class StopCallback {
 public:
  StopCallback(const StopToken& token, UniqueFunction<void()> callback);
  ~StopCallback();
  StopCallback(const StopCallback&) = delete;
  StopCallback& operator=(const StopCallback&) = delete;

 private:
  friend class StopSource;
  void unlink();

  UniqueFunction<void()> callback_;
  StopSource* source_ = nullptr;  // while it is listed
  StopCallback* previous_ = nullptr;
  StopCallback* next_ = nullptr;
};

}  // namespace perdure::base
