#pragma once
// Seam: time. Real programs use PosixClock, simulated ones chaos' SimClock. Coroutines sleep with
// base/sleep.h, which is built on call_at.

#include <cstdint>

#include "base/unique_function.h"
#include "base/units.h"

namespace perdure::base {

// Names a pending call_at. The value 0 names none.
enum class TimerId : uint64_t { kNone = 0 };

class Clock {
 public:
  virtual ~Clock() = default;

  // Monotonic, since an arbitrary start. Any thread.
  virtual Nanos now() const = 0;

  // Wall-clock time for people and file names; it may jump. Any thread. Decisions use now().
  virtual int64_t unix_ms() const = 0;

  // Calls `callback` once, at `when` or soon after, on the thread of the clock's component, never
  // from inside call_at. kNoDeadline is never called. Only the component's thread may call this and
  // cancel().
  virtual TimerId call_at(Nanos when, UniqueFunction<void()> callback) = 0;

  // After this the callback is not called, and it is destroyed. An id that has fired, or kNone, is
  // ignored.
  virtual void cancel(TimerId id) = 0;
};

// Owns one pending call: cancels it when destroyed. The clock outlives it.
class Timer {
 public:
  Timer(Clock& clock, Nanos when, UniqueFunction<void()> callback)
      : clock_(clock), id_(clock.call_at(when, std::move(callback))) {}
  ~Timer() { clock_.cancel(id_); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  Clock& clock_;
  TimerId id_;
};

}  // namespace perdure::base
