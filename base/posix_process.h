#pragma once
// Facts about this process, and threads with a name.

#include <cstdint>
#include <string>
#include <thread>

#include "base/unique_function.h"
#include "base/units.h"

namespace perdure::base {

struct ProcessUsage {
  uint64_t resident_peak_bytes = 0;  // most memory that was ever resident
  uint64_t page_faults = 0;          // so far, with and without I/O
};
ProcessUsage process_usage();

// CPU time that this thread has used.
Nanos thread_cpu_time();

// A thread with a name (15 characters are shown), joined by its destructor: nothing runs detached.
class NamedThread {
 public:
  NamedThread(std::string name, UniqueFunction<void()> body);
  ~NamedThread() { join(); }
  NamedThread(const NamedThread&) = delete;
  NamedThread& operator=(const NamedThread&) = delete;
  void join();

 private:
  std::thread thread_;
};

}  // namespace perdure::base
