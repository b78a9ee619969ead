#pragma once
// Waiter: the place where one coroutine waits for one value, given by other code of the same
// thread. All waiting in Perdure that is not an Asio operation is built on it.

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <utility>

#include "base/task.h"
#include "base/unique_function.h"

namespace perdure::base {

// One pending wait, listed in its io_context: when the io_context is destroyed, coroutines that
// still wait are destroyed too, although nobody owns them (a waiter may live inside the frame that
// waits on it).
class PendingWait {
 public:
  PendingWait(const PendingWait&) = delete;
  PendingWait& operator=(const PendingWait&) = delete;

 protected:
  PendingWait() = default;
  virtual ~PendingWait() { unlink(); }
  void link(const Executor& executor);
  void unlink();

 private:
  friend class PendingWaits;
  virtual void drop() = 0;  // destroys the coroutine that waits

  PendingWait* previous_ = nullptr;
  PendingWait* next_ = nullptr;
};

// One wait() and one complete(), in either order, on the component's thread. Destroying it while a
// coroutine waits destroys that coroutine.
template <typename T>
class Waiter final : public PendingWait {
 public:
  Waiter() = default;

  // The value of complete(). Resumes in the executor's next turn, never inside complete().
  Task<T> wait();

  // The second and later calls are ignored: the first completer wins.
  void complete(T value);

  bool is_completed() const { return is_completed_; }

 private:
  void drop() override { handler_.reset(); }

  UniqueFunction<void(T)> handler_;
  std::optional<T> value_;  // completed before the wait
  bool is_completed_ = false;
};

template <typename T>
Task<T> Waiter<T>::wait() {
  const auto initiate = [this](auto&& handler) {
    const Executor executor = boost::asio::get_associated_executor(handler);
    handler_ = [h = std::move(handler)](T value) mutable {
      const Executor ex = boost::asio::get_associated_executor(h);
      boost::asio::post(ex,
                        [h = std::move(h), v = std::move(value)]() mutable { h(std::move(v)); });
    };
    if (value_.has_value()) {
      std::exchange(handler_, {})(*std::exchange(value_, std::nullopt));
    } else {
      link(executor);
    }
  };
  return boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void(T)>(
      initiate, boost::asio::use_awaitable);
}

template <typename T>
void Waiter<T>::complete(T value) {
  if (std::exchange(is_completed_, true)) return;
  if (!handler_) {
    value_ = std::move(value);
    return;
  }
  unlink();
  // Moved out first: the coroutine may destroy this waiter.
  std::exchange(handler_, {})(std::move(value));
}

}  // namespace perdure::base
