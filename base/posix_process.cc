#include "base/posix_process.h"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace perdure::base {

ProcessUsage process_usage() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return {.resident_peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024,
          .page_faults =
              static_cast<uint64_t>(usage.ru_minflt) + static_cast<uint64_t>(usage.ru_majflt)};
}

Nanos thread_cpu_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + Nanos(time.tv_nsec);
}

NamedThread::NamedThread(std::string name, UniqueFunction<void()> body)
    : thread_([run = std::move(body)]() mutable { run(); }) {
  name.resize(std::min<size_t>(name.size(), 15));
  ::pthread_setname_np(thread_.native_handle(), name.c_str());
}

void NamedThread::join() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace perdure::base
