#include "runtime/worker/engine_thread.h"

namespace perdure::runtime::worker {

EngineThread::EngineThread() {
  thread_ = std::make_unique<base::NamedThread>("engine", [this] { run(); });
}

bool EngineThread::post(base::UniqueFunction<void()> work) {
  base::MutexLock lock(mutex_);
  if (is_ending_) return false;
  queue_.push_back(std::move(work));
  changed_.notify_one();
  return true;
}

void EngineThread::end() {
  base::MutexLock lock(mutex_);
  is_ending_ = true;
  changed_.notify_one();
}

void EngineThread::join() {
  end();
  thread_->join();
}

void EngineThread::run() {
  while (true) {
    base::UniqueFunction<void()> work;
    {
      base::MutexLock lock(mutex_);
      while (queue_.empty() && !is_ending_) changed_.wait(mutex_);
      if (is_ending_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace perdure::runtime::worker
