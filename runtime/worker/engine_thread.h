#pragma once
// EngineThread: a thread that runs what it is given, in order.
//
// Threads: post() by any; the rest by the owner. What was not begun when the thread is told to end
// is dropped.

#include <deque>
#include <memory>

#include "base/mutex.h"
#include "base/posix_process.h"
#include "base/unique_function.h"

namespace perdure::runtime::worker {

class EngineThread {
 public:
  EngineThread();
  ~EngineThread() { join(); }

  // False when the thread was told to end.
  bool post(base::UniqueFunction<void()> work);
  // Lets it end after what it is running, and does not wait.
  void end();
  void join();

 private:
  void run();

  base::Mutex mutex_;
  base::CondVar changed_;
  std::deque<base::UniqueFunction<void()>> queue_ GUARDED_BY(mutex_);
  bool is_ending_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<base::NamedThread> thread_;
};

}  // namespace perdure::runtime::worker
