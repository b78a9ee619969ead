#include "base/task.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <exception>

#include "base/gate.h"

namespace perdure::base {
namespace {

// `pass` is destroyed with this frame, after all that the task owned.
Task<void> run_inside([[maybe_unused]] Gate::Pass pass, Task<void> task) {
  co_await boost::asio::post(boost::asio::use_awaitable);
  co_await std::move(task);
}

void check_no_exception(std::exception_ptr error) {
  if (error == nullptr) return;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    CHECK(false) << "an exception left a task: " << e.what();
  } catch (...) {
    CHECK(false) << "an exception left a task";
  }
}

}  // namespace

Status spawn(const Executor& executor, Gate& gate, Task<void> task) {
  ASSIGN_OR_RETURN(Gate::Pass pass, gate.enter());
  boost::asio::co_spawn(executor, run_inside(std::move(pass), std::move(task)), check_no_exception);
  return Status::ok();
}

void post(const Executor& executor, UniqueFunction<void()> function) {
  boost::asio::post(executor, std::move(function));
}

}  // namespace perdure::base
