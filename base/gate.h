#pragma once
// Gate: counts the tasks that are inside a component, so that stop() can wait for all of them.
//
//   Task<void> Server::stop() {
//     stop_.request_stop();
//     listener_->close();
//     co_await gate_.close();  // now no task of this server is left
//   }

#include <cstddef>
#include <utility>

#include "base/condition.h"
#include "base/status.h"
#include "base/task.h"

namespace perdure::base {

// The component's thread only. Outlives its passes; a gate that is destroyed with a task inside is
// a bug.
class Gate {
 public:
  // Being inside; leaves when destroyed.
  class Pass {
   public:
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->leave();
    }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) : gate_(gate) {}
    Gate* gate_;
  };

  Gate() = default;
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  ~Gate();

  // kCancelled when the gate is closed.
  Result<Pass> enter();

  // Lets nobody in from now on, and returns when all have left. May be called more than once.
  Task<void> close();

  bool is_closed() const { return is_closed_; }
  size_t inside_count() const { return inside_count_; }

 private:
  void leave();

  size_t inside_count_ = 0;
  bool is_closed_ = false;
  Condition empty_;
};

}  // namespace perdure::base
