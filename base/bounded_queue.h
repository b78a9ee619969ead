#pragma once
// Queues of a fixed size: a full one pushes back instead of growing.
//
//   BoundedQueue   between threads; waiting blocks the thread (worker threads only, never
//   coroutines) TaskQueue      between the coroutines of one component; waiting suspends the
//   coroutine

#include <chrono>
#include <cstddef>
#include <deque>
#include <utility>

#include "base/clock.h"
#include "base/condition.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/task.h"
#include "base/units.h"

namespace perdure::base {

// Any number of threads on both sides. close() wakes all of them: push then fails, pop drains what
// is left.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t count_max) : count_max_(count_max) { CHECK_GT(count_max, 0u); }

  // kResourceExhausted when full, kCancelled when closed. On an error `item` is left as it was.
  Status try_push(T&& item) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return push_locked(std::move(item));
  }

  // Waits for room, at most `timeout` of real time: kDeadlineExceeded; kCancelled when closed.
  Status push(T&& item, Nanos timeout) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!wait_locked(not_full_, timeout, [this]() REQUIRES(mutex_) {
          return is_closed_ || items_.size() < count_max_;
        })) {
      return deadline_exceeded("queue: no room before the deadline");
    }
    return push_locked(std::move(item));
  }

  // Waits for an item, at most `timeout` of real time: kDeadlineExceeded; kCancelled when closed
  // and empty.
  Result<T> pop(Nanos timeout) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!wait_locked(not_empty_, timeout,
                     [this]() REQUIRES(mutex_) { return is_closed_ || !items_.empty(); })) {
      return deadline_exceeded("queue: no item before the deadline");
    }
    if (items_.empty()) return cancelled("the queue is closed");
    T item = std::move(items_.front());
    items_.pop_front();
    not_full_.notify_one();
    return item;
  }

  void close() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    is_closed_ = true;
    not_full_.notify_all();
    not_empty_.notify_all();
  }

  size_t size() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  Status push_locked(T&& item) REQUIRES(mutex_) {
    if (is_closed_) return cancelled("the queue is closed");
    if (items_.size() >= count_max_) return resource_exhausted("the queue is full");
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return Status::ok();
  }

  template <typename Ready>
  bool wait_locked(CondVar& condition, Nanos timeout, Ready ready) NO_THREAD_SAFETY_ANALYSIS {
    if (timeout == kNoDeadline) {
      condition.wait(mutex_, ready);
      return true;
    }
    return condition.wait_for(mutex_, timeout, ready);
  }

  const size_t count_max_;
  mutable Mutex mutex_;
  CondVar not_full_;
  CondVar not_empty_;
  std::deque<T> items_ GUARDED_BY(mutex_);
  bool is_closed_ GUARDED_BY(mutex_) = false;
};

// Only the component's thread. The clock outlives the queue, which outlives its waits.
template <typename T>
class TaskQueue {
 public:
  TaskQueue(size_t count_max, Clock& clock) : count_max_(count_max), clock_(clock) {
    CHECK_GT(count_max, 0u);
  }

  // kResourceExhausted when full, kCancelled when closed. On an error `item` is left as it was.
  Status try_push(T&& item) {
    if (is_closed_) return cancelled("the queue is closed");
    if (items_.size() >= count_max_) return resource_exhausted("the queue is full");
    items_.push_back(std::move(item));
    not_empty_.notify_one();
    return Status::ok();
  }

  // Waits for room: kDeadlineExceeded, or kCancelled when closed.
  Task<Status> push(T item, Nanos deadline) {
    while (!is_closed_ && items_.size() >= count_max_) {
      CO_RETURN_IF_ERROR(co_await not_full_.wait(clock_, deadline));
    }
    co_return try_push(std::move(item));
  }

  // Waits for an item: kDeadlineExceeded, or kCancelled when closed and empty.
  Task<Result<T>> pop(Nanos deadline) {
    while (!is_closed_ && items_.empty()) {
      CO_RETURN_IF_ERROR(co_await not_empty_.wait(clock_, deadline));
    }
    if (items_.empty()) co_return cancelled("the queue is closed");
    T item = std::move(items_.front());
    items_.pop_front();
    not_full_.notify_one();
    co_return item;
  }

  void close() {
    is_closed_ = true;
    not_full_.notify_all();
    not_empty_.notify_all();
  }

  size_t size() const { return items_.size(); }

 private:
  const size_t count_max_;
  Clock& clock_;
  std::deque<T> items_;
  bool is_closed_ = false;
  Condition not_full_;
  Condition not_empty_;
};

}  // namespace perdure::base
