#pragma once
// A mutex that clang's -Wthread-safety can check. Only leaf classes own one (never held across
// co_await).
//
//   Mutex mutex_;
//   int count_ GUARDED_BY(mutex_);
//   MutexLock lock(mutex_);

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define PERDURE_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define PERDURE_THREAD_ANNOTATION_(x)
#endif

#define CAPABILITY(x) PERDURE_THREAD_ANNOTATION_(capability(x))
#define SCOPED_CAPABILITY PERDURE_THREAD_ANNOTATION_(scoped_lockable)
#define GUARDED_BY(x) PERDURE_THREAD_ANNOTATION_(guarded_by(x))
#define REQUIRES(...) PERDURE_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) PERDURE_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) PERDURE_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define RELEASE(...) PERDURE_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS PERDURE_THREAD_ANNOTATION_(no_thread_safety_analysis)

namespace perdure::base {

class CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() ACQUIRE() { mutex_.lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits on a Mutex that the caller holds: wait(mutex) is written in a loop around its condition.
using CondVar = std::condition_variable_any;

}  // namespace perdure::base
