#pragma once
// Task<T>: a coroutine of one component. The only header of base/ that includes Asio.
//
//   Task<Status> Worker::serve(Epoch epoch);           // rules for coroutines: STYLE "Asynchronous
//   code" RETURN_IF_ERROR(spawn(executor_, gate_, loop()));  // loop() is a Task<void>
//
// All coroutines of a component run on one thread, that of its io_context. Asio exceptions do not
// come out of Perdure's functions: an exception that leaves a spawned task is a bug and ends the
// process.

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <utility>

#include "base/status.h"
#include "base/unique_function.h"

namespace perdure::base {

class Gate;

// Lazy: runs when it is awaited or spawned. Arguments are taken by value, or refer to what outlives
// the gate.
template <typename T>
using Task = boost::asio::awaitable<T>;

using Executor = boost::asio::any_io_executor;

// Starts `task` on `executor`, inside `gate`. It starts in the executor's next turn, not inside
// this call. kCancelled when the gate is closed: the task is then destroyed unrun. The thread of
// `executor`.
Status spawn(const Executor& executor, Gate& gate, Task<void> task);

// Runs `function` on `executor`'s thread, in its next turn. Any thread: this is how other threads
// talk to a component. Dropped when the executor's io_context is destroyed first.
void post(const Executor& executor, UniqueFunction<void()> function);

// Puts the value of `task` into `out`, for those who run a loop until it is there (mains, tests).
template <typename T>
Task<void> store_result(Task<T> task, std::optional<T>& out) {
  out.emplace(co_await std::move(task));
}

}  // namespace perdure::base
